"""Joining modules: the order is correct, and the modules of the page can share one scope."""

import re

from warpfrag.viz.explorer.page_builder import IMPORT, PAGE, join_modules

DECLARATION = re.compile(r"^(export )?(?:async )?(?:function\*?|const|let|class) (\w+)", re.MULTILINE)


def test_a_module_stands_after_those_it_imports():
    joined = join_modules(
        {
            "main.js": 'import { twice } from "./maths.js";\nimport {\n  say,\n} from "./words.js";\nsay(twice(2));\n',
            "maths.js": "export function twice(x) {\n  return 2 * x;\n}\n",
            "words.js": 'import { twice } from "./maths.js";\nexport const say = (x) => twice(x);\n',
        }
    )

    assert joined == (
        "// maths.js\nfunction twice(x) {\n  return 2 * x;\n}\n\n"
        "// words.js\nconst say = (x) => twice(x);\n\n"
        "// main.js\nsay(twice(2));\n"
    )


def test_modules_of_the_page_can_share_one_scope():
    texts = {path.name: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")}
    joined = join_modules(texts)
    declared = [name for _, name in DECLARATION.findall(joined)]

    assert not re.search(r"^(?:import|export)\b.*", joined, re.MULTILINE)
    assert len(declared) > 100
    assert sorted(set(declared)) == sorted(declared)


def test_every_module_of_the_page_is_used():
    files = {path.name: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")}
    imported = set(re.findall(r'from "\./([\w.]+)"', "\n".join(files.values())))

    assert len(files) > 10
    assert set(files) == imported | {"main.js"}


def test_what_a_module_gives_away_is_taken():
    texts = {path.name: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")}
    given = {(name, export) for name, text in texts.items() for keyword, export in DECLARATION.findall(text) if keyword}
    taken = {
        (file, name)
        for text in texts.values()
        for names, file in IMPORT.findall(text)
        for name in re.findall(r"\w+", names)
    }

    assert given == taken


def test_every_imported_name_is_used():
    for path in PAGE.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        body = re.sub(r"^import [^;]+;\n", "", text, flags=re.MULTILINE)
        for names in re.findall(r"^import \{([^}]+)\}", text, re.MULTILINE):
            unused = [name for name in re.findall(r"\w+", names) if not re.search(rf"\b{name}\b", body)]
            assert unused == [], path.name

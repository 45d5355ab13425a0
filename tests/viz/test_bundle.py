"""Joining modules: the order is right, and what cannot be joined is refused."""

from __future__ import annotations

import re

import pytest

from warpfrag.viz.explorer.page_builder import DECLARATION, IMPORT, PAGE, join_modules


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


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a.js": 'import { b } from "./b.js";\n'}, "a.js: imports b.js, which is not there; there are a.js"),
        ({"a.js": 'import { b } from "./b.js";\n', "b.js": "const b = 1;\n"}, "a.js: b.js does not export b"),
        (
            {"a.js": "const x = 1;\n", "b.js": "let x = 2;\n"},
            "b.js: x is declared in a.js too; joined modules share one scope",
        ),
        ({"a.js": "export default 1;\n"}, "a.js: cannot join 'export default 1;'"),
        ({"a.js": 'import * as b from "./b.js";\n', "b.js": ""}, "a.js: cannot join 'import * as b from \"./b.js\";'"),
        (
            {
                "a.js": 'import { b } from "./b.js";\nexport const a = 1;\n',
                "b.js": 'import { a } from "./a.js";\nexport const b = 1;\n',
            },
            "modules import each other in a circle",
        ),
    ],
)
def test_what_cannot_be_joined_is_refused(files, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        join_modules(files)


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

"""A real browser for these tests: Debian's chromium or any other that is on the path, driven by playwright."""

import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest

from warpfrag.viz.explorer import build_page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SWITCHES = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
# What the page must never do, collected where the page cannot reach it; and what is scrolled, for FORGET.
WATCH = """
addEventListener("securitypolicyviolation", (event) => console.error("policy: " + event.violatedDirective));
window.scrolled = new Set();
addEventListener("scroll", ({ target }) => scrolled.add(target.scrollingElement ?? target), { capture: true });
"""
# Following a link inside the page: done once the page has answered. A link to where it is goes by way of another.
FOLLOW = """async (hash) => {
  const follow = (next) => new Promise((done) => {
    addEventListener("hashchange", () => requestAnimationFrame(done), { once: true });
    location.hash = next;
  });
  if (location.hash === hash) await follow(hash ? "" : "#q=b1");
  await follow(hash);
}"""
# What a page has that its address does not hold: the focus, an open finder, where it is scrolled to, what it said last.
# Scrolling is told in the frame after it. To ask every element where it stands would lay out all that is out of sight.
FORGET = """async () => {
  document.activeElement?.blur();
  document.querySelector("#finder").open = matchMedia("(min-width: 1080px)").matches;
  await new Promise(requestAnimationFrame);
  for (const part of scrolled) part.scrollTo(0, 0);
  scrolled.clear();
  document.querySelector("#toast").classList.remove("shown");
}"""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    """Mark every test of this folder slow."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)


def missing(reason):
    """Skip, or fail if a browser is required."""
    if os.environ.get("WARPFRAG_REQUIRE_BROWSER") == "1":
        pytest.fail(f"WARPFRAG_REQUIRE_BROWSER is set, but {reason}")
    pytest.skip(f"the explorer is not tested in a browser: {reason}")


@pytest.fixture(scope="session")
def browser():
    """A browser, started once."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        missing(f"none of {', '.join(BROWSERS)} is on the path")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=SWITCHES)
        yield started
        started.close()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory):
    """The page, as a user has it: one file on disk."""
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(build_page(), encoding="utf-8")
    return path


@pytest.fixture
def data(page_file):
    """Return the data of the page, read from the page."""
    page = page_file.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])


@dataclass
class Explorer:
    """The page in a tab, with its errors and requests."""

    tab: object
    address: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def show(self, **state):
        """Open a link to a state of the page, given as in its address."""
        link = f"#{urlencode(state)}" if state else ""
        if self.tab.url.startswith(self.address):
            self.tab.evaluate(FOLLOW, link)
        else:
            self.tab.goto(self.address + link)
            self.tab.wait_for_selector("#view > *")
        return self.tab

    def cell(self, operand, row, col, part=0):
        """The cell of one element in the matrix view."""
        return self.tab.locator(f'[data-grid="{operand}.{part}"] [data-row="{row}"][data-col="{col}"]')

    def field(self, name):
        """Return an entry of the details: lane, register, bits, slot or element."""
        return self.tab.locator(f'#details [data-field="{name}"]').inner_text()

    def state(self):
        """Return the page's address."""
        return self.tab.evaluate("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")


def open_tab(browser, page_file, **settings):
    """Open a tab with the page; every request except the one for the file itself is recorded and blocked."""
    context = browser.new_context(**({"viewport": {"width": 1440, "height": 1000}} | settings))
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(60_000)  # on a busy machine too
    tab = context.new_page()
    explorer = Explorer(tab, page_file.as_uri())
    tab.add_init_script(WATCH)
    tab.on("console", lambda message: message.type in {"error", "warning"} and explorer.complaints.append(message.text))
    tab.on("pageerror", lambda error: explorer.complaints.append(str(error)))

    def guard(route):
        address = route.request.url
        if address.partition("#")[0] == explorer.address:
            route.continue_()
        else:
            explorer.requests.append(address)
            route.abort()

    context.route("**/*", guard)
    tab.on("request", lambda request: request.url.startswith(("http", "ws")) and explorer.requests.append(request.url))
    return explorer


def check(opened):
    """Fail if the page reported an error or made a request."""
    complaints, requests = opened.complaints[:], opened.requests[:]
    opened.complaints.clear()
    opened.requests.clear()
    assert complaints == []
    assert requests == []


def lent(tab):
    """Yield a shared tab in its initial state: all other state of the page is in its address."""
    tab.tab.mouse.move(0, 0)
    if tab.tab.url.startswith(tab.address):
        tab.tab.evaluate(FORGET)
    yield tab
    check(tab)


@pytest.fixture(scope="session")
def shared_tab(browser, page_file):
    """One tab for many tests: opening the page takes ten times as long as following a link in it."""
    opened = open_tab(browser, page_file)
    yield opened
    opened.tab.context.close()


@pytest.fixture(scope="session")
def shared_phone(browser, page_file):
    """One tab on a phone for many tests."""
    opened = open_tab(browser, page_file, **PHONE)
    yield opened
    opened.tab.context.close()


@pytest.fixture
def explorer(shared_tab):
    """The page; a test fails if the page reports an error or makes a request while the test runs."""
    yield from lent(shared_tab)


@pytest.fixture
def phone(shared_phone):
    """The page on a phone."""
    yield from lent(shared_phone)


@pytest.fixture
def fresh(browser, page_file):
    """The page in a new tab, for tests of how it opens."""
    opened = open_tab(browser, page_file)
    yield opened
    opened.tab.context.close()
    check(opened)

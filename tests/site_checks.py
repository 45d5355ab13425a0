"""Open every page of the built site in a real browser, as a reader of the published site does."""

import shutil
import sys
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SWITCHES = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WIDE = {"viewport": {"width": 1440, "height": 1000}}
LARGEST = 1_000_000  # bytes of a page; the explorer holds every layout and may be larger
EXPLORER = "live/index.html"
BACKGROUND = "getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).slice(0, 3).map(Number)"


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, *_):
        """Print nothing."""


@contextmanager
def served(site):
    """The address of the site on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def browser_path():
    """A browser on the path, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def pages_of(site):
    """Every page of the site."""
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))


def large_pages(site):
    """Pages that take too long to load."""
    return [name for name in pages_of(site) if name != EXPLORER and (site / name).stat().st_size > LARGEST]


def watch(tab, address, found):
    """Note the script errors, failed requests and requests to other machines of a tab."""
    tab.on("pageerror", lambda error: found.append(f"{tab.url}: {error}"))
    tab.on("console", lambda said: found.append(f"{tab.url}: {said.text}") if said.type == "error" else None)
    tab.on("response", lambda got: found.append(f"{got.url}: status {got.status}") if got.status >= 400 else None)
    ours = (address, "data:")
    tab.on("request", lambda asked: None if asked.url.startswith(ours) else found.append(f"asks for {asked.url}"))


def complaints(site):
    """Errors, pages that are wider than the screen, light pages in dark mode; a search must find something."""
    from playwright.sync_api import sync_playwright

    found = []
    pages = [name for name in pages_of(site) if not name.startswith("families/") or name == "families/index.html"]
    with served(site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=SWITCHES)
        for screen, scheme, chosen in ((PHONE, "light", pages), (WIDE, "dark", pages[::4])):
            context = browser.new_context(**screen, color_scheme=scheme)
            context.set_default_timeout(120_000)  # on a busy machine too
            tab = context.new_page()
            watch(tab, address, found)
            for name in chosen:
                tab.goto(f"{address}/{name}")
                width = tab.evaluate("document.documentElement.scrollWidth")
                if width > screen["viewport"]["width"]:
                    found.append(f"{name}: {width} pixels wide, the screen {screen['viewport']['width']}")
                if scheme == "dark" and name != EXPLORER and max(tab.evaluate(BACKGROUND)) > 80:
                    found.append(f"{name}: light in dark mode")
            tab.goto(f"{address}/search.html?q=ldmatrix")
            tab.wait_for_selector("#search-results ul.search li a")
            context.close()
        browser.close()
    return found


if __name__ == "__main__":
    sys.stdout.writelines(f"{text}\n" for text in complaints(Path(sys.argv[1])))

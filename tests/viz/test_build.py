"""The page is one small, reproducible file, and its policy matches its contents."""

import base64
import hashlib
import json
import re

import pytest

from warpfrag.viz.explorer import build_page
from warpfrag.viz.explorer import page_builder as build
from warpfrag.viz.explorer.explorer_data import page_data

KIBIBYTE = 1024


def part(pattern):
    found = re.search(pattern, build_page(), re.DOTALL)
    assert found
    return found[1]


def test_the_page_is_small():
    assert 100 * KIBIBYTE < len(build_page().encode()) < 750 * KIBIBYTE


def test_the_policy_names_the_script_and_the_style_by_hash():
    policy = part(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">')
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

    def digest(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert rules == {
        "default-src": "'none'",
        "script-src": digest(part(r'<script type="module">(.*?)</script>')),
        "style-src": digest(part(r"<style>(.*?)</style>")),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_page_names_no_other_file_and_no_other_place():
    page = build_page()
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+[\w./]*", re.sub(r"^//.*", "", page, flags=re.MULTILINE)))

    assert addresses == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=[\"'](?!data:)[^\"']*", page) == []
    assert "{{" not in page.replace("`{{", "")
    assert not re.search(r"\son\w+=|style=\"", page)


@pytest.mark.slow
def test_the_page_is_the_same_every_time_and_its_data_can_be_read_back(monkeypatch):
    data = page_data()  # anew, while the page is remembered
    monkeypatch.setattr(build, "page_data", lambda: data)
    text = part(r'<script id="data" type="application/json">(.*?)</script>')

    assert build_page.__wrapped__() == build_page()
    assert "<" not in text
    assert json.loads(text) == json.loads(json.dumps(data))

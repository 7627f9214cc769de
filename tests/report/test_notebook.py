"""What a notebook shows. IPython is no dependency: its protocol is the method `_repr_html_`, which is called here."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from fedskew import Run, Store

EVIL = "<script>alert(1)</script>"


class Words(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture
def store() -> Store:
    store = Store()
    run = Run(name=EVIL, model="softmax", partition="classes:1", clients=5, examples=200, rounds=3, lr=0.5)
    for _ in store.advance(store.create(run), device="cpu"):
        pass
    return store


def test_a_spec_an_entry_and_a_store_are_tables(store: Store) -> None:
    (entry,) = store.runs()
    for thing in (Run(**entry.spec), entry, store):
        shown = Words(thing._repr_html_())
        assert EVIL in shown.words
        assert "script" not in shown.tags
        assert {"digits", "classes:1", "fedavg"} <= set(shown.words)
    facts = Words(entry._repr_html_()).words
    assert facts[facts.index("seed") + 1] == "0"
    assert facts[facts.index("clients") + 1] == "5"
    assert facts[facts.index("round") + 1] == "3 of 3"


def test_rows_are_charts_and_a_table_and_stay_a_list(store: Store) -> None:
    (entry,) = store.runs()
    rows = store.records(entry.id)
    shown = Words(rows._repr_html_())
    assert shown.tags.count("svg") == 2
    assert {"test accuracy", "training loss", "communication round", "The last 3 of 3 rows"} <= set(shown.words)
    assert rows == list(rows)
    assert set(re.findall(r"//[\w.]+", rows._repr_html_())) == {"//www.w3.org"}  # XML's names, which are never asked
    assert store.records(entry.id, after=3)._repr_html_() == "<p>no rows yet</p>"


def test_nothing_is_drawn_before_it_is_shown() -> None:
    script = "import sys; from fedskew import Run, Store; Run(); Store().runs(); print('altair' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

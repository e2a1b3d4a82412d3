"""The page that is served during runs: to this machine alone, and up to date."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedquilt.experiment.page.watch import Watch
from fedquilt.experiment.report import gather
from fedquilt.experiment.run import resume, run

SPEC: dict[str, Any] = {
    "run": {"rounds": 2},
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 5},
    "model": {"name": "softmax_regression"},
    "method": {"name": "fed_avg"},
    "engine": {"name": "inline"},
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Watch]:
    watch = Watch([tmp_path / "runs"], lambda paths, reader: gather(paths, reader)[0])
    thread = threading.Thread(target=watch.serve)
    thread.start()
    yield watch
    watch.close()
    thread.join(timeout=10)
    assert not thread.is_alive()


def ask(watch: Watch, path: str = "/", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", watch.port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


def test_only_this_machine_is_answered(served: Watch) -> None:
    assert served.address == f"http://127.0.0.1:{served.port}/"
    for host in (
        "evil.example",
        f"evil.example:{served.port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "",
        f"127.0.0.1.evil.example:{served.port}",
    ):
        status, text, _ = ask(served, "/content", Host=host)
        assert (status, text) == (403, "This page is served to this machine alone.\n")
    assert ask(served, "/content", Host=f"localhost:{served.port}")[0] == 200
    assert ask(served, "/../../etc/passwd")[0] == 404
    assert ask(served, "/runs")[0] == 404


def test_content_changes_with_the_runs(served: Watch, tmp_path: Path) -> None:
    before = ask(served, "/content")
    assert before[0] == 200
    assert "there is no such folder" in before[1]
    run(SPEC, out=tmp_path / "runs" / "first")
    status, text, headers = ask(served, "/content")
    assert status == 200
    assert "curves" in str(json.loads(text)["figures"].keys())
    assert ask(served, "/content", **{"If-None-Match": headers["ETag"]})[0] == 304
    resume(tmp_path / "runs" / "first", rounds=3)
    status, text, _ = ask(served, "/content", **{"If-None-Match": headers["ETag"]})
    assert status == 200
    assert "in round 3." in text or "3 of 3 rounds" in text


@pytest.mark.timeout(120)
def test_the_page_grows_in_the_browser(browser: Any, served: Watch, tmp_path: Path) -> None:
    run(SPEC, out=tmp_path / "runs" / "first")
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(served.address)
    page.wait_for_selector("body[data-ready]")
    assert page.locator("table[data-table='runs'] tbody tr").count() == 1
    holder = page.locator("[data-figure='1-curves']")
    holder.get_by_label("over").select_option("seconds")
    page.locator("details summary").first.click()
    run(SPEC, out=tmp_path / "runs" / "second")
    page.wait_for_function("document.querySelectorAll(\"table[data-table='runs'] tbody tr\").length === 2")
    page.wait_for_function("document.querySelector(\"[data-figure='1-curves'] .chart svg\") !== null")
    assert holder.get_by_label("over").input_value() == "seconds", "what the reader chose stays"
    assert page.locator("details[open]").count() == 1
    page.close()
    assert said == []


@pytest.mark.timeout(120)
def test_the_command_ends_by_an_interrupt(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "fedquilt", "watch", str(tmp_path), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Open http://127.0.0.1:")
        with urllib.request.urlopen(f"{line.split()[1]}content") as answer:  # it is being served
            assert "is empty" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "Ended; the runs continue.\n", "")


def test_a_port_that_is_taken(served: Watch, tmp_path: Path) -> None:
    from fedquilt.base.errors import RunError

    with pytest.raises(RunError, match=rf"port {served.port}: cannot be listened on: .*; choose another with --port"):
        Watch([tmp_path], lambda *_: [], served.port)

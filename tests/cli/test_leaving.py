"""How the command `fedquilt` ends: at once, and with nothing left undone."""

import subprocess
import sys
from pathlib import Path

import pytest

import fedquilt

BEGIN = """
import atexit, sys, threading, time
from fedquilt.__main__ import command
atexit.register(print, "registered")
sys.argv = ["fedquilt", {words}]
{before}
command()
"""

VERSION = f"{fedquilt.__version__}\n"


def ended(words: str, before: str = "") -> tuple[int, str]:
    code = BEGIN.format(words=words, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_output_exit_functions_and_the_code_are_as_always() -> None:
    assert ended("'--version'") == (0, f"{VERSION}registered\n")
    assert ended("'run', 'nothere.toml'") == (2, "registered\n")


def test_a_thread_that_still_works_is_waited_for() -> None:
    late = "threading.Thread(target=lambda: (time.sleep(1), print('late', flush=True))).start()"
    code, said = ended("'--version'", late)
    # On a busy machine, the command itself may take longer than the thread.
    assert (code, said) in [(0, f"{VERSION}late\nregistered\n"), (0, f"late\n{VERSION}registered\n")]


def test_python_takes_nothing_apart() -> None:
    """An object's own ending would run while modules are taken apart."""
    kept = "class Kept:\n    __del__ = lambda self: print('taken apart')\nkept = Kept()"
    assert "taken apart" not in ended("'--version'", kept)[1]


def test_what_was_written_to_an_open_file_is_there(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    assert ended("'--version'", f"log = open({str(path)!r}, 'w'); log.write('written')")[0] == 0
    assert path.read_text() == "written"


def test_a_profile_is_written(tmp_path: Path) -> None:
    code = BEGIN.format(words="'--version'", before="")
    (tmp_path / "program.py").write_text(code)
    profiled = [sys.executable, "-m", "cProfile", "-o", str(tmp_path / "profile"), str(tmp_path / "program.py")]
    subprocess.run(profiled, check=True, capture_output=True)
    assert (tmp_path / "profile").stat().st_size > 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_output_is_no_failure(closed: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BEGIN.format(words="'--version'", before="atexit.unregister(print)"))
    asked = f"{sys.executable} {tmp_path / 'program.py'} {closed}"
    assert subprocess.run(["sh", "-c", asked], check=False).returncode == 0

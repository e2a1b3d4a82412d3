"""How the command `fedquilt` ends: at once, and with nothing left undone."""

import subprocess
import sys

BEGIN = """
import atexit, sys, threading, time
from fedquilt.__main__ import main
atexit.register(print, "registered")
sys.argv = ["fedquilt", {words}]
{before}
main()
"""


def ended(words: str, before: str = "") -> tuple[int, str]:
    code = BEGIN.format(words=words, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_output_exit_functions_and_the_code_are_as_always() -> None:
    assert ended("'--version'") == (0, "0.1.0\nregistered\n")
    assert ended("'run', 'nothere.toml'") == (2, "registered\n")


def test_a_thread_that_still_works_is_waited_for() -> None:
    late = "threading.Thread(target=lambda: (time.sleep(0.5), print('late', flush=True))).start()"
    assert ended("'--version'", late) == (0, "0.1.0\nlate\nregistered\n")


def test_python_takes_nothing_apart() -> None:
    """An object's own ending would run while modules are taken apart."""
    kept = "class Kept:\n    __del__ = lambda self: print('taken apart')\nkept = Kept()"
    assert "taken apart" not in ended("'--version'", kept)[1]

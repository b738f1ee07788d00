"""On a real JVM: the archive of classes is written, refuses what it should, and serves the tests that come after."""

from __future__ import annotations

import shutil

import pytest
from tests.quick import ARCHIVE, QUICK_JVM
from typer.testing import CliRunner

from evenkeel.cli import app
from evenkeel.errors import ArchiveUnwritable, UnreadableInput


def run(archive):
    return CliRunner().invoke(app, ["jvm-archive", str(archive)], catch_exceptions=False)


def test_an_archive_of_classes(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", QUICK_JVM)
    archive = tmp_path / "a folder" / "spark.jsa"
    done = run(archive)
    assert done.exit_code == 0
    assert f'spark.driver.extraJavaOptions="-XX:SharedArchiveFile={archive}"' in done.output
    assert archive.stat().st_size > 50e6, "Spark's classes are not in it"
    assert [f.name for f in archive.parent.iterdir()] == ["spark.jsa"]
    with pytest.raises(UnreadableInput, match="exists already"):
        run(archive)
    with pytest.raises(ArchiveUnwritable, match="not written"):
        run(archive / "below-a-file.jsa")
    part = ARCHIVE.with_suffix(".part")
    part.parent.mkdir(exist_ok=True)
    shutil.copyfile(archive, part)
    part.replace(ARCHIVE)

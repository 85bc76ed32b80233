"""A file is opened only where another user could open it, whichever way leads there."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.conftest import descriptors
from whyidle.monitor.processes.open_as import NotAllowed, User, open_as

NOBODY = User(65534)
OURSELVES = User.ourselves()


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that everybody may pass; those of pytest are its user's alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        (folder / "job").mkdir(mode=0o755)
        (folder / "job" / "train.py").write_text("x = 1\n")
        yield folder


def read(path: Path, who: User = NOBODY) -> str:
    with os.fdopen(open_as(path, who)) as file:
        return file.read()


def refuses(path: Path, who: User = NOBODY) -> bool:
    before = descriptors()
    with pytest.raises(NotAllowed):
        open_as(path, who)
    assert descriptors() == before
    return True


def test_an_open_file_in_open_folders_is_read(home: Path) -> None:
    assert read(home / "job" / "train.py") == "x = 1\n"
    assert read(home / "job" / ".." / "job" / "train.py") == "x = 1\n"


def test_an_open_file_in_a_closed_folder_is_not(home: Path) -> None:
    (home / "job").chmod(0o700)
    assert refuses(home / "job" / "train.py")
    assert read(home / "job" / "train.py", OURSELVES)
    (home / "job").chmod(0o755)
    home.chmod(0o700)
    assert refuses(home / "job" / "train.py")


def test_nor_is_it_through_a_link_of_its_owner(home: Path) -> None:
    (home / "job").chmod(0o700)
    for target in (str(home / "job"), "job", "../" + home.name + "/job"):
        link = home / "link"
        link.symlink_to(target)
        assert refuses(link / "train.py")
        (home / "job").chmod(0o755)
        # Our link: root's own, or a stranger's to that user.
        if os.geteuid() == 0:
            assert read(link / "train.py") == "x = 1\n"
        assert read(link / "train.py", OURSELVES) == "x = 1\n"
        (home / "job").chmod(0o700)
        link.unlink()


def test_a_link_that_a_stranger_laid_is_not_followed(home: Path) -> None:
    link = home / "link"
    link.symlink_to("job")
    if os.geteuid() != 0:
        assert refuses(link / "train.py")
        return
    os.chown(link, 4711, 4711, follow_symlinks=False)
    assert refuses(link / "train.py")
    assert read(link / "train.py", User(4711)) == "x = 1\n"


def test_the_rights_of_the_owner_and_the_group_count_where_they_are_meant(home: Path) -> None:
    file = home / "job" / "train.py"
    status = file.stat()
    file.chmod(0o640)
    assert refuses(file)
    assert read(file, User(65534, frozenset({status.st_gid})))
    file.chmod(0o604)
    assert refuses(file, User(65534, frozenset({status.st_gid})))
    assert read(file)
    file.chmod(0o600)
    assert refuses(file, User(None))
    assert read(file, OURSELVES)
    assert read(file, User(0))


def test_a_last_part_that_is_a_link_and_a_loop_are_an_error(home: Path) -> None:
    (home / "link.py").symlink_to(home / "job" / "train.py")
    (home / "loop").symlink_to("loop")
    before = descriptors()
    for path in (home / "link.py", home / "loop" / "train.py", home / "gone" / "train.py"):
        with pytest.raises(OSError, match=r"symbolic links|No such file"):
            open_as(path, OURSELVES)
    # One may only go through what one may run; root may go through everything.
    (home / "job" / "train.py").chmod(0o755)
    with pytest.raises(NotADirectoryError):
        open_as(home / "job" / "train.py" / "x.py", OURSELVES)
    assert descriptors() == before


def test_a_user_is_known_by_name_or_number_with_all_groups() -> None:
    assert User.named("root").uid == 0
    assert User.named("4711") == User(4711)
    assert User.named("no such user") == User(None)
    group = pwd.getpwnam("nobody").pw_gid
    assert User.named("nobody").groups == set(os.getgrouplist("nobody", group))

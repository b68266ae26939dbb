"""Who may own a file or folder that is trusted: this user, or root."""

from __future__ import annotations

import os


def owner_fault(status: os.stat_result) -> str | None:
    """What is wrong with the owner of what `status` describes, for an error's text; None: nothing.

    A mode closes a file to everybody but its owner, so the owner must be one who could see and
    change everything anyway. Root does not trust other users' files: their owners can.
    """
    me = os.geteuid()
    if status.st_uid in (me, 0):
        return None
    return (
        f"belongs to user id {status.st_uid}, who may look into it or replace it; expected user id"
        f" {me}, who runs this, or root"
    )

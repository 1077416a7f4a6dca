"""What a box can promise about the code that runs in it.

A `Guarantee` is one sentence that a probe can refute on this machine. A backend claims a set of them; `choose` checks
each claim before it is relied on; a verdict carries the set that held. Nothing else in the contract speaks of
namespaces, users or filters.
"""

from __future__ import annotations

from enum import StrEnum


class Guarantee(StrEnum):
    """One promise of a box. The meaning of each is in `MEANING`."""

    AGENT_CODE = "agent_code"
    FS_CONFINED = "fs_confined"
    FS_METADATA_CONFINED = "fs_metadata_confined"
    NO_NETWORK = "no_network"
    NO_SURVIVORS = "no_survivors"
    ENV_CLEAN = "env_clean"
    TESTS_HIDDEN = "tests_hidden"
    RESULT_PRIVATE = "result_private"
    HARNESS_UNTOUCHABLE = "harness_untouchable"
    NO_NEW_PRIVILEGES = "no_new_privileges"
    PIDS_HIDDEN = "pids_hidden"
    PRIVATE_TMP = "private_tmp"
    PROCESS_QUOTA = "process_quota"
    MEMORY_QUOTA = "memory_quota"
    BYTE_QUOTA = "byte_quota"
    INODE_QUOTA = "inode_quota"
    INDEPENDENT_UID = "independent_uid"


MEANING: dict[Guarantee, str] = {
    Guarantee.AGENT_CODE: "code that the agent wrote may run in it",
    Guarantee.FS_CONFINED: "no content of the host's files can be read or changed outside the named read-only paths",
    Guarantee.FS_METADATA_CONFINED: "the host's files cannot even be seen: no size, time or mode",
    Guarantee.NO_NETWORK: "no socket of any kind: TCP, UDP, unix, abstract, vsock",
    Guarantee.NO_SURVIVORS: "nothing that it started is alive when its result is read",
    Guarantee.ENV_CLEAN: "no environment variable of the caller reaches it or its launcher",
    Guarantee.TESTS_HIDDEN: "hidden tests, graders and installed packages are absent from what it can open",
    Guarantee.RESULT_PRIVATE: "it inherits stdin, stdout and stderr, and no other descriptor",
    Guarantee.HARNESS_UNTOUCHABLE: "it cannot trace, signal or read the process that started it",
    Guarantee.NO_NEW_PRIVILEGES: "no capability, no setuid gain, no nested user namespace",
    Guarantee.PIDS_HIDDEN: "it sees no process but its own",
    Guarantee.PRIVATE_TMP: "its /tmp and /dev/shm are its own and vanish with it",
    Guarantee.PROCESS_QUOTA: "a fork bomb stops at its own limit and costs nobody else a process",
    Guarantee.MEMORY_QUOTA: "each of its processes has a bounded address space",
    Guarantee.BYTE_QUOTA: "all that it writes together is bounded",
    Guarantee.INODE_QUOTA: "the number of files that it makes is bounded",
    Guarantee.INDEPENDENT_UID: "it runs as a user that owns nothing on the host",
}
"""One line for each guarantee."""

REQUIRED_BY_DEFAULT = frozenset(
    {
        Guarantee.FS_CONFINED,
        Guarantee.NO_NETWORK,
        Guarantee.NO_SURVIVORS,
        Guarantee.ENV_CLEAN,
        Guarantee.TESTS_HIDDEN,
        Guarantee.RESULT_PRIVATE,
    }
)
"""What a verifier's box must give unless the experiment names less."""

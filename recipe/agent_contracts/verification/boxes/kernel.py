"""Linux calls that Python has no name for: Landlock, seccomp, prctl. Standard library only; x86_64 numbers.

Loaded by path inside a box, where nothing is installed: it must import nothing of this package.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 38, 36
LANDLOCK_ABI = 6
"""The first that also confines signals and abstract sockets (Linux 6.12)."""
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG, _REFER = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 13
_ALL_FS = (1 << 16) - 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
# No devices, sockets, pipes or links: nothing that trusted code could trip over.
_WRITE = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _TRUNCATE | _REFER
_SCOPE_ABSTRACT, _SCOPE_SIGNAL = 1, 2
_ON_FILES = _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL

# fmt: off
EVERYWHERE = {
    "socket": 41, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_getfd": 438,
    "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "mount_setattr": 442, "bpf": 321, "keyctl": 250, "add_key": 248, "request_key": 249, "kexec_load": 246,
    "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176, "userfaultfd": 323,
    "perf_event_open": 298, "io_uring_setup": 425, "name_to_handle_at": 303, "open_by_handle_at": 304,
    "clock_settime": 227, "settimeofday": 164, "adjtimex": 159, "clock_adjtime": 305, "quotactl": 179, "syslog": 103,
    "shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "semop": 65, "semctl": 66, "semtimedop": 220, "msgget": 68,
    "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240, "mq_unlink": 241, "memfd_create": 319,
    "memfd_secret": 447,
}
"""Denied in every box. `socket` whole: a network namespace does not confine AF_VSOCK. System V objects and nameless
files hold memory that neither the address space nor a file system's size bounds."""
WITHOUT_NAMESPACES = {
    "mknod": 133, "mknodat": 259, "link": 86, "linkat": 265, "symlink": 88, "symlinkat": 266,
    "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "chown": 92, "fchown": 93, "lchown": 94,
    "fchownat": 260, "utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280, "setxattr": 188,
    "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199,
    "setpriority": 141, "sched_setparam": 142, "sched_setscheduler": 144,
    "sched_setaffinity": 203, "sched_setattr": 314, "ioprio_set": 251, "kcmp": 312, "migrate_pages": 256,
    "move_pages": 279, "process_madvise": 440, "process_mrelease": 448,
}
"""Denied besides where the host's own processes and files' metadata are in reach."""
# fmt: on
_CLONE, _CLONE3, _PRLIMIT = 56, 435, 302
_NEWEST_KNOWN = 449
"""futex_waitv (Linux 5.16). What came later, setxattrat for one, does what an older call does, which libraries use."""
_CLONE_NEWUSER = 0x10000000
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_AUDIT_ARCH_X86_64 = 0xC000003E

_libc = ctypes.CDLL(None, use_errno=True)


def is_supported() -> bool:
    """Whether the numbers here are this machine's."""
    return os.uname().machine == "x86_64"


def prctl(option: int, value: int) -> None:
    """Set one attribute of this process."""
    zero = ctypes.c_ulong(0)
    _checked(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero), "prctl")


def landlock_abi() -> int:
    """The version of Landlock that the kernel offers.

    Raises:
        OSError: when it offers none.
    """
    return _call("landlock", _LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))


def landlock(read: list[str], listed: list[str], write: list[str]) -> None:
    """Confine this process and its children by path; no TCP, and no signals to what is outside.

    Args:
        read: Below these, everything may be read.
        listed: Below these, folders may be listed.
        write: Below these, files and folders may be made, changed and removed.

    Raises:
        OSError: when the kernel refuses, or its Landlock is older than `LANDLOCK_ABI`.
    """
    abi = landlock_abi()
    if abi < LANDLOCK_ABI:
        raise OSError(errno.EOPNOTSUPP, f"Landlock ABI {abi}, {LANDLOCK_ABI} is needed (Linux 6.12)")
    rules = _rules(_ALL_FS, tcp=3, scopes=_SCOPE_ABSTRACT | _SCOPE_SIGNAL)
    for paths, access in ((read, _READ), (listed, _READ_DIR), (write, _WRITE)):
        for path in paths:
            _grant(rules, path, access)
    _enforce(rules)


def keep_signals_in() -> None:
    """From now on this process can signal itself and its descendants only, whatever user either is.

    A process that a descendant confines by `landlock` cannot signal this one.

    Raises:
        OSError: when the kernel refuses.
    """
    _enforce(_rules(0, tcp=0, scopes=_SCOPE_SIGNAL))


def _rules(files: int, tcp: int, scopes: int) -> int:
    attributes = struct.pack("QQQ", files, tcp, scopes)
    return _call("landlock", _LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))


def _enforce(rules: int) -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _call("landlock", _LANDLOCK_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
    os.close(rules)


def _grant(rules: int, path: str, access: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        granted = access if os.path.isdir(path) else access & _ON_FILES
        _call("landlock", _LANDLOCK_ADD, ctypes.c_int(rules), ctypes.c_int(1), struct.pack("=Qi", granted, place), 0)
    finally:
        os.close(place)


def seccomp(denied: Mapping[str, int], own_limits_only: bool = False) -> None:
    """Deny system calls to this process and its children, and with them every new user namespace.

    Args:
        denied: Number by name.
        own_limits_only: Whether the resource limits of other processes are out of reach.

    Raises:
        OSError: when the kernel refuses, or the numbers of this architecture are not known.
    """
    if not is_supported():
        raise OSError(errno.ENOSYS, f"no system call numbers for {os.uname().machine}")
    program = b"".join(_filter(denied, own_limits_only))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    set_mode_filter = 1
    _call("seccomp", 317, ctypes.c_uint(set_mode_filter), ctypes.c_uint(0), header)


def _filter(denied: Mapping[str, int], own_limits_only: bool) -> list[bytes]:
    def op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, value)

    load, equal, greater, any_bit, give = 0x20, 0x15, 0x25, 0x45, 0x06
    number, architecture, argument = 0, 4, 16
    eperm = _ERRNO | errno.EPERM
    program = [
        op(load, architecture),
        op(equal, _AUDIT_ARCH_X86_64, 1),
        op(give, _KILL),  # another architecture's numbers mean other calls
        op(load, number),
        op(greater, _NEWEST_KNOWN, 0, 1),  # the x32 numbers too
        op(give, _ERRNO | errno.ENOSYS),
        op(equal, _CLONE3, 0, 1),  # its flags are behind a pointer; libc falls back to clone
        op(give, _ERRNO | errno.ENOSYS),
    ]
    for call in denied.values():
        program += [op(equal, call, 0, 1), op(give, eperm)]
    program += [op(equal, _CLONE, 0, 4), op(load, argument), op(any_bit, _CLONE_NEWUSER, 0, 1), op(give, eperm)]
    program += [op(load, number)]
    if own_limits_only:
        program += [op(equal, _PRLIMIT, 0, 3), op(load, argument), op(equal, 0, 1), op(give, eperm)]
    return [*program, op(give, _ALLOW)]


def _call(name: str, number: int, *arguments: object) -> int:
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments), name)


def _checked(result: int, name: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result

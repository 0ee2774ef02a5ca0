"""What Python lacks on other systems than Linux, taken away from the modules that have it here.

To be imported when all of others is loaded that needs it: torch, numpy, and what these load. After the documentation
of Python 3.11 ("Availability"), as far as the names are there.
"""

import fnmatch
import importlib
import sys

#: Patterns of names, by module; those after ``!`` stay.
DARWIN = {
    "os": (
        "memfd_create eventfd* EFD_* MFD_* pidfd_* P_PIDFD sched_getaffinity sched_setaffinity "
        "sched_getscheduler sched_setscheduler sched_getparam sched_setparam sched_rr_get_interval "
        "sched_param SCHED_BATCH SCHED_IDLE SCHED_RESET_ON_FORK posix_fadvise posix_fallocate POSIX_FADV_* "
        "splice SPLICE_* copy_file_range getrandom GRND_* getresuid getresgid setresuid setresgid pipe2 "
        "O_DIRECT O_TMPFILE O_NOATIME O_PATH O_RSYNC O_LARGEFILE *xattr XATTR_* unshare setns CLONE_* "
        "fdatasync RWF_* waitid"
    ),
    "signal": ("SIGRT* SIGPOLL SIGPWR SIGSTKFLT SIGCLD sigtimedwait sigwaitinfo pidfd_send_signal"),
    "mmap": (
        "MADV_* MAP_POPULATE MAP_DENYWRITE MAP_EXECUTABLE MAP_STACK !MADV_DONTNEED !MADV_FREE !MADV_NORMAL "
        "!MADV_RANDOM !MADV_SEQUENTIAL !MADV_WILLNEED"
    ),
    "socket": (
        "SOCK_CLOEXEC SOCK_NONBLOCK MSG_CMSG_CLOEXEC MSG_NOSIGNAL SO_PEERCRED SO_PASSCRED SO_PASSSEC "
        "SO_PEERSEC SO_MARK SO_DOMAIN SO_PROTOCOL SO_PRIORITY SO_BINDTODEVICE SCM_CREDENTIALS AF_NETLINK "
        "AF_PACKET AF_VSOCK AF_ALG AF_TIPC AF_CAN"
    ),
    "select": ("epoll EPOLL*"),
    "resource": (
        "RLIMIT_OFILE prlimit RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_RTTIME RLIMIT_SIGPENDING RUSAGE_THREAD"
    ),
    "fcntl": (
        "F_OFD_* F_ADD_SEALS F_GET_SEALS F_SEAL_* F_SETPIPE_SZ F_GETPIPE_SZ F_NOTIFY DN_* F_SETSIG F_GETSIG "
        "F_SETLEASE F_GETLEASE"
    ),
    "time": ("CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid clock_settime"),
}
WINDOWS = {
    "os": (
        DARWIN["os"] + " "
        "fork* register_at_fork getuid geteuid getgid getegid getgroups getpgid getpgrp setsid setpgid getsid "
        "set*id killpg getloadavg sysconf* uname wait wait3 wait4 W* mkfifo mknod chown fchown lchown fchmod "
        "pread pwrite readv writev preadv pwritev sendfile get_blocking set_blocking O_CLOEXEC O_NONBLOCK "
        "O_NOFOLLOW O_DIRECTORY O_SYNC O_DSYNC O_NOCTTY O_ASYNC statvfs fstatvfs nice *priority* PRIO_* "
        "ctermid openpty forkpty posix_spawn* fchdir fchmod sync SCHED_* sched_* lockf F_* pathconf* confstr* "
        "ttyname tcgetpgrp tcsetpgrp posix_openpt getlogin_r initgroups major minor makedev chroot !WSTOPPED"
    ),
    "signal": (
        "SIG* *sig* setitimer getitimer alarm pause ITIMER_* pthread_* !SIGABRT !SIGFPE !SIGILL !SIGINT "
        "!SIGSEGV !SIGTERM !SIG_DFL !SIG_IGN !signal !getsignal !valid_signals !strsignal !raise_signal "
        "!_signal !Signals !_int_to_enum !_enum_to_int !default_int_handler"
    ),
    "mmap": ("PROT_* MAP_* MADV_*"),
    "socket": (DARWIN["socket"] + " AF_UNIX SCM_* CMSG_* send_fds recv_fds SOCK_SEQPACKET"),
    "select": ("poll epoll POLL* EPOLL* PIPE_BUF"),
    "time": ("CLOCK_* clock_* tzset pthread_getcpuclockid"),
}
#: Modules that are not there at all.
GONE_ON_WINDOWS = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog", "_posixsubprocess")


def take_away(platform):
    """Has this process lack it, and say that it is on ``platform``: "darwin" or "win32"."""
    lists = DARWIN if platform == "darwin" else WINDOWS
    for name, patterns in lists.items():
        module = importlib.import_module(name)
        stays = [pattern[1:] for pattern in patterns.split() if pattern.startswith("!")]
        goes = [pattern for pattern in patterns.split() if not pattern.startswith("!")]
        for attribute in dir(module):
            if any(fnmatch.fnmatchcase(attribute, pattern) for pattern in goes) and attribute not in stays:
                delattr(module, attribute)
    if platform == "win32":
        sys.modules.update(dict.fromkeys(GONE_ON_WINDOWS))
    sys.platform = platform

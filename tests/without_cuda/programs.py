"""The programs: each a shell command in a folder of its own, with what it needs and what of its output is not the same
twice. Those marked `slow` are left to the full form."""
import dataclasses
import os
import shutil

DIGITS = (r"\d+", "N")
SECONDS = (r"\b\d+\.\d+ ?s\b", "T s")


@dataclasses.dataclass
class Program:
    name: str
    command: str
    files: dict = dataclasses.field(default_factory=dict)  # by name, made before each run
    needs: tuple = ()        # commands and files
    packages: tuple = ()     # Debian's, that have them
    pip: tuple = ()          # PyPI's, in PYTHONPATH
    normal: tuple = ()       # (pattern, replacement) for stdout and stderr
    ignored: str = ""        # pattern of files whose content is not looked at
    unsorted: bool = False   # stderr: lines in any order, each once
    same_ends: bool = True   # what the probe finds at the end of each process is the same twice
    slow: bool = False
    strange_user: bool = False  # as a user without rights, if this one has them
    beside: tuple = ()       # libraries preloaded before and after ours, natively not at all
    simulated: bool = False  # uses CUDA, so the library comes to life
    seconds: int = 120


HELLO_C = """#include <stdio.h>
int square(int x) { return x * x; }
int main(void) { int unused; for (int i = 0; i < 5; i++) printf("%d ", square(i)); puts(""); return 4; }
"""

THREADS_JAVA = """import java.util.concurrent.*;
import java.util.stream.*;
public class Hello {
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        var parts = IntStream.range(0, 64).mapToObj(i -> pool.submit(() -> {
            long sum = 0;
            byte[] memory = new byte[1 << 16];
            for (int j = 0; j < 2000; j++) { memory[j % memory.length]++; sum += (long) i * j; }
            return sum;
        })).collect(Collectors.toList());
        long sum = 0;
        for (var part : parts) sum += part.get();
        pool.shutdown();
        pool.awaitTermination(1, TimeUnit.MINUTES);
        System.out.println("sum " + sum);
        long before = -1, count = tasks(); // a thread that has ended is in the list for a moment yet
        for (int same = 0; same < 5; same = count == before ? same + 1 : 0) {
            before = count;
            Thread.sleep(50);
            count = tasks();
        }
        System.out.println("tasks " + count);
        System.exit(6);
    }
    static long tasks() throws Exception {
        try (var list = java.nio.file.Files.list(java.nio.file.Path.of("/proc/self/task"))) { return list.count(); }
    }
}
"""

PAGE = """<html><body><p id=a>x</p><canvas id=c></canvas><script>
document.getElementById("a").textContent = [1, 2, 3].map(x => x * x).join(" ") + " " + navigator.language;
</script></body></html>
"""

ALLOCATE_C = """#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *work(void *user) {
    long sum = 0;
    for (int i = 1; i < 2000; i++) { char *p = malloc(i); memset(p, 1, i); sum += p[i - 1]; free(p); }
    *(long *)user = sum;
    return NULL;
}
int main(void) {
    pthread_t thread[4];
    long sum[4], all = 0;
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, work, &sum[i]);
    for (int i = 0; i < 4; i++) { pthread_join(thread[i], NULL); all += sum[i]; }
    printf("%ld\\n", all);
    return 3;
}
"""

IN_PYTHON = """import ctypes, os, subprocess, sys, threading, time
found = []
threads = [threading.Thread(target=lambda: found.append(sum(range(1000)))) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
until = time.monotonic() + 10  # a thread that was joined is in the list for a moment yet
while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < until:
    time.sleep(0.001)
print(sum(found), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))
child = os.fork()
if child == 0:
    os._exit(3)
print(os.waitpid(child, 0)[1], subprocess.run(["sh", "-c", "echo out; exit 2"]).returncode)
print(ctypes.CDLL(None).getpid() == os.getpid(), hasattr(ctypes.CDLL(None), "cuInit"))
sys.exit(4)
"""

SSHD_CONFIG = """HostKey {work}/host
AuthorizedKeysFile {work}/user.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
AcceptEnv LD_PRELOAD
"""

SSH = """ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f user && chmod 600 host user || exit 9
sed "s|{work}|$PWD|" sshd_config.in >sshd_config
try() {
    ssh -F none -i user -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=known -o LogLevel=ERROR \\
        -o ProxyCommand="$(command -v sshd || echo /usr/sbin/sshd) -i -f $PWD/sshd_config" "$(id -un)@nowhere" "$@"
}
try 'echo over there; echo wrong >&2; exit 5'
echo "status $?"
head -c 3000000 /dev/zero | try 'wc -c'
ssh -F none -G nowhere | grep -E '^(port|hostname|batchmode)'
"""

GIT = """git init -q -b main there && cd there || exit 9
for i in 1 2 3 4 5 6 7 8; do
    echo "$i" >"file$i" && git add . && git commit -q -m "number $i"
done
cd .. && git clone file://"$PWD"/there here && git -C here log --format='%H %s' && git -C here fsck --strict
git -C here status --short; git -C here gc -q && git -C here rev-list --count HEAD
"""

GIT_NAMES = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "A",
             "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z",
             "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z", "GIT_CONFIG_GLOBAL": "/dev/null",
             "GIT_CONFIG_NOSYSTEM": "1", "GIT_PAGER": "cat"}

PACKAGE_TESTS = """python3 -m pytest -q -p no:cacheprovider --pyargs toolz"""

BASH = """f() { local x=$1; echo "$x" | while read -r y; do echo "<$y>"; done; }
for i in 1 2 3; do f "$i"; done
(exit 7); echo "$?"; ls /proc/self/task | wc -l; sleep 0 & wait $!
trap 'echo ended' EXIT; kill -USR1 $$ & wait; echo not reached; exit 3
"""

ENVIRONMENT = {"git": GIT_NAMES}


def programs(tools):
    """`tools`: what was built for this, and where: confined, resets and libraries beside."""
    found = [
        Program("bash", "bash script", {"script": BASH}, ("bash",)),
        Program("perl", "perl -e 'my $t = () = glob(\"/proc/self/task/*\"); print \"$t tasks\\n\"; my $p = fork; exit 3 "
                        "unless $p; waitpid $p, 0; print $? >> 8, \"\\n\"; system(\"echo sub\"); die \"so\\n\"'",
                needs=("perl",), packages=("perl",)),
        Program("python", "python3 script.py", {"script.py": IN_PYTHON}, ("python3",)),
        Program("node", "node -e 'const {Worker, isMainThread} = require(\"worker_threads\"); setTimeout(() => "
                        "{ console.log([3, 1, 2].sort().join(\" \")); console.error(\"error\"); process.exit(5) }, 20)'",
                needs=("node",), packages=("nodejs",), same_ends=False),
        Program("gcc", "gcc -O2 -g0 -Wall -c hello.c && gcc -o hello hello.o && ./hello; echo $?; gcc -c nowhere.c",
                {"hello.c": HELLO_C}, ("gcc",), normal=((r"/tmp/cc\w+", "/tmp/cc"),)),
        Program("git", GIT, needs=("git",), ignored=r"/\.git/"),
        Program("su", "su nobody_of_this_name", needs=("su",), strange_user=True, packages=("util-linux",)),
        Program("passwd", "passwd -S; passwd -S root", needs=("passwd",), strange_user=True, packages=("passwd",)),
        Program("mount", "mount /nowhere/at/all; mount --version", needs=("mount",), strange_user=True, packages=("mount",)),
        Program("seccomp", f"{tools['confined']} filter; echo $?; {tools['confined']} strict; echo $?",
                needs=(tools["confined"],)),
        Program("java", "javac Hello.java && java -Xint -XX:+UseSerialGC Hello", {"Hello.java": THREADS_JAVA},
                ("java", "javac"), ("default-jdk-headless",), same_ends=False, slow=True),
        Program("pytest", PACKAGE_TESTS, needs=("python3",), pip=("pytest", "toolz"), normal=(SECONDS,), same_ends=False,
                slow=True),
        Program("chromium", "chromium --headless --no-sandbox --disable-gpu --dump-dom --user-data-dir=$PWD/profile "
                            "file://$PWD/page.html", {"page.html": PAGE}, ("chromium",), ("chromium",),
                normal=(DIGITS, (r"bus/bus\.cc.*", "bus")), ignored=r".*", unsorted=True, same_ends=False, slow=True),
        Program("ssh", SSH, {"sshd_config.in": SSHD_CONFIG}, ("ssh", "/usr/sbin/sshd"),
                ("openssh-client", "openssh-server"), ignored=r"host|user|known", slow=True),
        Program("valgrind", "gcc -g -O1 -pthread -o program program.c && valgrind -q --error-exitcode=9 ./program",
                {"program.c": ALLOCATE_C}, ("gcc", "valgrind"), ("valgrind",), same_ends=False, slow=True),
    ]
    if tools["resets"]:
        found.append(Program("CUDA, simulated", f"{tools['resets']} 4 80", needs=(tools["resets"],), simulated=True,
                             same_ends=False))
    for name, library, package in (("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
                                   ("mimalloc", "libmimalloc.so.2", "libmimalloc2.0")):
        for order in ("before", "after"):
            beside = ((tools[library],), ()) if order == "before" else ((), (tools[library],))
            what = dict(beside=beside, packages=(package,), same_ends=False)
            found.append(Program(f"{name} {order}, python", "python3 script.py", {"script.py": IN_PYTHON},
                                 ("python3", tools[library] or library), **what))
            if tools["resets"]:
                found.append(Program(f"{name} {order}, CUDA, simulated", f"{tools['resets']} 4 80",
                                     needs=(tools["resets"], tools[library] or library), simulated=True, **what))
    return found


def missing(program, modules):
    """What of its needs isn't there."""
    lacking = [need for need in program.needs if not shutil.which(need) and not os.path.isabs(need) or
               os.path.isabs(need) and not os.path.exists(need)]
    return lacking + [name for name in program.pip if name not in modules]

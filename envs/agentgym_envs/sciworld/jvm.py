"""A Java virtual machine (JVM) with ScienceWorld, which exits with its parent process."""

import contextlib
import importlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import types
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym_envs.base import extras
from agentgym_envs.base.environment import EnvironmentFault, SetupError, SimulatorLost
from agentgym_envs.base.protocol import ErrorKind

JAVA_HINT = (
    "Install a Java runtime (Debian and Ubuntu: apt-get install default-jre-headless; conda: "
    "conda install openjdk) or set JAVA_HOME."
)
PACKAGE_HINT = f"Install it with: {extras.install('sciworld')}"

# README.md has the measurements. Live data are 15 MiB plus about 0.4 MiB per episode. With a small
# initial heap, the JVM collects garbage before it requests more memory. A JVM that is out of memory
# exits, so that its sessions are restored in another JVM. Otherwise the JVM would answer with the
# exception as an observation.
MEMORY_FLAGS = (
    "-XX:+UseSerialGC",
    "-Xms64m",
    "-Xmx512m",
    "-XX:NewSize=32m",
    "-XX:MaxNewSize=32m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
    "-XX:ReservedCodeCacheSize=48m",
    "-XX:CICompilerCount=2",
    "-XX:+ExitOnOutOfMemoryError",
)
# The simulator keeps objects in hash sets of identity hashes, which are arbitrary numbers. The
# order of objects, and even temperatures, would depend on the earlier work of the JVM. With
# equal hashes the order is the order of insertion.
DETERMINISM_FLAGS = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")
# The JVM writes no performance data to /tmp, because a killed JVM would leave the file behind.
CLEANLINESS_FLAGS = ("-XX:-UsePerfData",)


class Jvm:
    """A running JVM.

    The standard input of the JVM is a pipe from this process. When this process ends for any
    reason, the JVM reads the end of the pipe and exits. The JVM's port is open only to programs on
    this computer and requires a token.

    Raises:
      SetupError: Java or the `scienceworld` package is missing or does not work.
    """

    def __init__(self) -> None:
        java = find_java(os.environ)
        py4j, scienceworld = import_packages()
        class_path = os.pathsep.join([py4j.find_jar_path(), scienceworld.JAR_PATH])
        command = [
            java,
            *MEMORY_FLAGS,
            *DETERMINISM_FLAGS,
            *CLEANLINESS_FLAGS,
            "-cp",
            class_path,
            "py4j.GatewayServer",
            "--die-on-broken-pipe",
            "--enable-auth",
            "0",
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=scienceworld.BASEPATH,  # the simulator reads a table from this folder
            text=True,
        )
        port, token = self._read_greeting(java)
        self._protocol = importlib.import_module("py4j.protocol")
        # References are released explicitly. py4j's own finalizers would call the JVM from any
        # code that Python's garbage collector interrupts.
        self._gateway = py4j.JavaGateway(
            gateway_parameters=py4j.GatewayParameters(
                port=port, auth_token=token, enable_memory_management=False
            )
        )
        self.classes = self._gateway.jvm
        self._silence()

    def _read_greeting(self, java: str) -> tuple[int, str]:
        """Reads the port and token, which py4j prints after any output of Java."""
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            if line.strip().isdigit():
                return int(line), self.process.stdout.readline().strip()
            said.append(line.strip())
        self.close()
        raise SetupError(
            f"sciworld: {java} does not run ScienceWorld; expected a HotSpot Java runtime, version "
            f"11 or newer, found: {' '.join(said)[:300] or 'no output'}. {JAVA_HINT}"
        )

    def _silence(self) -> None:
        """Discards the simulator's output, because the pipe has no reader any more."""
        sink = self.classes.java.io.OutputStream.nullOutputStream()
        stream = self.classes.java.io.PrintStream(sink)
        self.classes.java.lang.System.setOut(stream)
        self.classes.java.lang.System.setErr(stream)

    def release(self, java_object: Any) -> None:
        """Releases a Java object to which Python referred, so that the JVM can collect it."""
        self._gateway.detach(java_object)

    def close(self) -> None:
        """Stops the JVM and waits for its exit."""
        gateway = getattr(self, "_gateway", None)
        if gateway is not None:
            gateway.close()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @contextlib.contextmanager
    def calls(self) -> Iterator[None]:
        """Wraps calls into the JVM and converts py4j's errors to the errors below.

        Raises:
          EnvironmentFault: SIMULATOR after an exception inside the simulator.
          SimulatorLost: The JVM does not answer.
        """
        try:
            yield
        except self._protocol.Py4JJavaError as error:
            cause = " ".join(str(error.java_exception).split())[:300]
            raise EnvironmentFault(
                ErrorKind.SIMULATOR, f"sciworld: the simulator failed with {cause}"
            ) from error
        except (self._protocol.Py4JError, OSError) as error:
            if "Trace:" in str(error):
                raise  # the JVM has no such method, which is an error of this package
            raise SimulatorLost(f"sciworld: the Java virtual machine is gone ({error})") from error


def find_java(environ: Mapping[str, str]) -> str:
    """Returns the `java` command: the one in JAVA_HOME if that is set, else the first on PATH.

    Raises:
      SetupError: There is no `java` command.
    """
    home = environ.get("JAVA_HOME", "")
    if home:
        java = pathlib.Path(home) / "bin" / "java"
        if not java.is_file():
            raise SetupError(f"sciworld: JAVA_HOME is {home}, but there is no {java}. {JAVA_HINT}")
        return str(java)
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise SetupError(
            f"sciworld: needs Java; JAVA_HOME is not set and PATH has no java. {JAVA_HINT}"
        )
    return found


def import_packages() -> tuple[types.ModuleType, types.ModuleType]:
    """Imports py4j's gateway module and the constants of `scienceworld`."""
    for name in ("scienceworld", "py4j"):
        if importlib.util.find_spec(name) is None:
            raise SetupError(f"sciworld: the Python package {name} is missing. {PACKAGE_HINT}")
    return (
        importlib.import_module("py4j.java_gateway"),
        importlib.import_module("scienceworld.constants"),
    )

"""Random programs beside PyTorch for a given processor time, part by part; each part names its seeds.

  PYTHONPATH=build/python /usr/bin/python3 python/tests/long_programs.py views 3600 31000000

KIND is autograd, views, optimizers, or wrapped. The third number is the first seed. Ends with 1 if a program disagrees.
Copy the package and this folder first if the tree will change meanwhile.
"""

import os
import pathlib
import resource
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
# Seeds of one part, some 40 to 80 seconds each.
SCRIPTS = {"autograd": ("autograd_programs.py", 5000), "views": ("view_programs.py", 20000)}
TESTS = {"optimizers": ("test_optimizer_programs.py", 3000, 3000), "wrapped": ("test_wrapped_gradients.py", 150, 1)}


def processor_time():
    """Seconds of all parts so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_part(kind, seed):
    """Return the finished process, what it ran, and the next seed."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([environment.get("PYTHONPATH", ""), str(FOLDER)])
    if kind in SCRIPTS:
        script, count = SCRIPTS[kind]
        after = seed + count
        command, text = [FOLDER / script, str(seed), str(after)], f"{seed} to {after - 1}"
    else:
        script, cases, step = TESTS[kind]
        environment |= {"LOCKSTEP_TEST_SEED": str(seed), "LOCKSTEP_TEST_CASES": str(cases)}
        after = seed + step
        command = ["-m", "pytest", "-qq", "-p", "no:cacheprovider", FOLDER / script]
        text = f"LOCKSTEP_TEST_SEED={seed}, {cases} cases"
    done = subprocess.run([sys.executable, *command], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    return done, text, after


def main(kind, seconds, seed):
    """Run parts until they have used the processor time."""
    failed = 0
    while processor_time() < seconds:
        done, text, seed = run_part(kind, seed)
        failed += done.returncode != 0
        print(f"{kind} {text}: {'ok' if done.returncode == 0 else done.stdout[-4000:]}, {processor_time():.0f} s, "
              f"{failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))

# SPDX-License-Identifier: Apache-2.0
# python check_transformers.py BUILD WORK: runs tests/equivalence/transformers_losses.py, which compares losses and the logits
# of saved weights with transformers.
import pathlib, subprocess, sys

build, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
script = pathlib.Path(__file__).parent.parent / "equivalence/transformers_losses.py"
sys.exit(subprocess.run([sys.executable, script, "--train", build / "bin/train", "--work", work / "folders"]).returncode)

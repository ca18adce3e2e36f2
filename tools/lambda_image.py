"""Sees to the image that sam local runs functions in, on a machine that cannot pull AWS's.

`python tools/lambda_image.py --build SCRIPT`: the script leaves a stand-in under the name of AWS's image; this gives it
the boto3 that Lambda's runtime brings along, as turnkeep's layer has none. An image that has a boto3 is left as it is.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = "/var/runtime"
HAS_BOTO3 = f"import sys; sys.path.append('{RUNTIME}'); import boto3"


def main() -> int:
    """Makes the image; 1 where that fails, with the reason on standard error."""
    parser = argparse.ArgumentParser(description="Make a stand-in for AWS's image of Lambda's Python.")
    parser.add_argument("--build", type=Path, required=True, help="the script that makes an image without boto3")
    build = parser.parse_args().build
    version = re.search(r"^ {4}Runtime: python(\S+)$", (ROOT / "template.yaml").read_text(encoding="utf-8"), re.M)
    assert version, "template.yaml names no runtime in its Globals"
    image = f"public.ecr.aws/lambda/python:{version[1]}-x86_64"
    try:
        subprocess.run([build.resolve(), version[1]], check=True, stdout=subprocess.DEVNULL)
        if _has_boto3(image):
            print(f"image: {image} is there")
        else:
            _add_boto3(image)
            print(f"image: {image} is there, with boto3")
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    return 0


def _has_boto3(image: str) -> bool:
    tried = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "python3", image, "-c", HAS_BOTO3]
    return subprocess.run(tried, check=False, capture_output=True).returncode == 0


def _add_boto3(image: str) -> None:
    """The boto3 that the tests run with, so that both stacks speak through the same one."""
    locked = (ROOT / "requirements" / "run.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^((?:boto3|botocore|s3transfer|jmespath|python-dateutil|six|urllib3)==\S+)", locked, re.M)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "boto3"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*install, "--target", str(target), *pins], check=True)
        (Path(folder) / "Dockerfile").write_text(f"FROM {image}\nCOPY boto3 {RUNTIME}\n", encoding="utf-8")
        subprocess.run(["docker", "build", "--quiet", "--tag", image, folder], check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())

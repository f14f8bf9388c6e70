# SPDX-License-Identifier: Apache-2.0
"""Model, optimizer, scaler and scheduler of torch. This module names their tensors and registers the rest as host state.

Names are those of the program: `model.` and the key of state_dict, or `optim.` with the parameter's name and the key of
its state. A tensor with two names (tied weights) has the first one."""
from __future__ import annotations

import importlib
from typing import Any, Iterator, Optional

from ._buffers import MAX_DIMS, Layout
from ._errors import Mismatch, StateChanged, UsageError
from ._job import Job, compare
from ._memory import Memory, PoolMemory

DTYPES = {"uint8": "u1", "int8": "i1", "uint16": "u2", "int16": "i2", "uint32": "u4", "int32": "i4", "uint64": "u8",
          "int64": "i8", "float16": "f2", "bfloat16": "bf16", "float32": "f4", "float64": "f8",
          "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2", "bool": "b1"}
PARTS = {"complex64": "f4", "complex128": "f8"}  # the types of the two parts of a complex number
COMPILED = "_orig_mod."  # the prefix that torch.compile adds to names


def attach(job: Job, model: Any, optimizer: Any, scaler: Any, scheduler: Any, memory: Optional[Memory]) -> None:
    """Puts tensors into memory that can be moved, and registers the rest."""
    if not job.active:
        return
    state = TorchState(model, optimizer, memory or PoolMemory(job._session))
    if optimizer is not None:
        make_state(optimizer)
    state.place()
    for name, tensor in state.named().items():
        job._name(name, tensor, state.layout(name, tensor), "optimizer" if name.startswith("optim.") else "parameter")
    state.remember()
    job._add_check(state.check)
    job.register("gpumigrate.tensors", state.save, state.restore)
    for name, part in (("scaler", scaler), ("scheduler", scheduler)):
        if part is not None:
            job.register(f"gpumigrate.{name}", part.state_dict, part.load_state_dict)


class TorchState:
    def __init__(self, model: Any, optimizer: Any, memory: Memory) -> None:
        self._torch = importlib.import_module("torch")
        self._model, self._optimizer, self._memory = model, optimizer, memory
        self._layouts: dict[str, Layout] = {}

    def _items(self) -> Iterator[tuple[str, Any, Any, Any]]:
        """Yields each tensor and value with its name, and the holder and key where a value that is no tensor is set. Tied
        tensors occur more than once."""
        if self._model is not None:
            for key, value in (*self._model.state_dict(keep_vars=True).items(),
                               *self._model.named_buffers(remove_duplicate=False)):
                yield "model." + key.replace(COMPILED, ""), value, None, key
        if self._optimizer is not None:
            yield from self._of_optimizer()

    def _of_optimizer(self) -> Iterator[tuple[str, Any, Any, Any]]:
        names: dict[int, str] = {}
        for name, value in self._model.named_parameters() if self._model is not None else ():
            names.setdefault(id(value), name.replace(COMPILED, ""))
        for number, group in enumerate(self._optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                name = names.get(id(parameter))
                if name is None:
                    name = f"group{number}.{index}"
                    yield f"param.{name}", parameter, None, None
                state = self._optimizer.state.get(parameter, {})
                for key, value in state.items():
                    yield f"optim.{name}.{key}", value, state, key
            for key, value in group.items():
                if key != "params":
                    yield f"optim.group{number}.{key}", value, group, key

    def _in_memory(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor) and value.numel() > 0 and self._memory.holds(value)

    def place(self) -> None:
        placed: dict[tuple[int, int], Any] = {}  # the placed tensors by address and size, so that tied
                                                 # tensors stay tied
        for _, tensor, _, _ in self._items():
            if not self._in_memory(tensor):
                continue
            key = (tensor.data_ptr(), tensor.nbytes)
            with self._torch.no_grad():
                there = placed.get(key)
                if there is None:
                    there = placed[key] = self._memory.place(tensor.detach())
                    placed[(there.data_ptr(), there.nbytes)] = there
                tensor.data = there

    def named(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        places = set()
        for name, tensor, _, _ in self._items():
            if not self._in_memory(tensor) or name in found:
                continue
            place = (tensor.data_ptr(), tensor.nbytes)
            if place not in places:
                places.add(place)
                found[name] = tensor
        return found

    def layout(self, name: str, tensor: Any) -> Layout:
        kind = str(tensor.dtype).removeprefix("torch.")
        # The axes are sorted by stride, because memory in a different order (channels_last) has a different
        # shape.
        order = sorted(range(tensor.dim()), key=lambda axis: (-tensor.stride(axis), axis))
        shape = tuple(tensor.shape[axis] for axis in order)
        expected = 1
        for axis in reversed(order):
            if tensor.shape[axis] != 1 and tensor.stride(axis) != expected:
                raise UsageError(f"'{name}' is not contiguous: it is a view with gaps")
            expected *= tensor.shape[axis]
        if kind in PARTS:
            kind, shape = PARTS[kind], (*shape, 2)
        elif kind in DTYPES:
            kind = DTYPES[kind]
        else:
            raise UsageError(f"'{name}': tensors of {tensor.dtype} cannot be named")
        if len(shape) > MAX_DIMS:
            shape = (tensor.numel(),)
        return Layout(self._memory.pointer(tensor), kind, shape)

    def remember(self) -> None:
        self._layouts = {name: self.layout(name, tensor) for name, tensor in self.named().items()}

    def check(self) -> None:
        now = self.named()
        for name, named in self._layouts.items():
            if name not in now:
                there = name in (item[0] for item in self._items())
                raise StateChanged(f"'{name}' was {'freed or moved to another device' if there else 'renamed or removed'} "
                                   "after it was named")
            compare(name, named, self.layout(name, now[name]))
        for name in sorted(now.keys() - self._layouts.keys()):
            raise StateChanged(f"'{name}' was created after attach(), which must find all state: create it before")

    def save(self) -> dict[str, Any]:
        """Returns copies of the state that is not in device memory. Without a copy, pickle would take the whole memory behind
        a view."""
        return {name: value.detach().clone() if isinstance(value, self._torch.Tensor) else value
                for name, value, _, _ in self._items() if not self._in_memory(value)}

    def restore(self, state: dict[str, Any]) -> None:
        extra = {}  # the values that get_extra_state returns
        with self._torch.no_grad():
            for name, value, holder, key in self._items():
                if self._in_memory(value):
                    continue
                if name not in state:
                    raise Mismatch(f"'{name}' is not in device memory here, and did not come with the host state")
                if isinstance(value, self._torch.Tensor):
                    value.copy_(state[name])
                elif holder is None:
                    extra[key] = state[name]
                else:
                    holder[key] = state[name]
        if extra:
            self._model.load_state_dict(extra, strict=False)


def make_state(optimizer: Any) -> None:
    """Makes the state that Adam, AdamW and SGD make at their first step, with the same zeros, since a standby has not
    stepped. The check after the first step finds other optimizers that make their state late."""
    torch = importlib.import_module("torch")
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if optimizer.state.get(parameter) or not parameter.requires_grad:
                continue
            state: dict[str, Any] = {}

            def zeros(_parameter: Any = parameter) -> Any:
                return torch.zeros_like(_parameter, memory_format=torch.preserve_format)

            if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW):
                on_device = group["capturable"] or group["fused"]
                wide = torch.get_default_dtype() == torch.float64 and not group["fused"]
                state["step"] = torch.zeros((), dtype=torch.float64 if wide else torch.float32,
                                            device=parameter.device if on_device else "cpu")
                state["exp_avg"], state["exp_avg_sq"] = zeros(), zeros()
                if group["amsgrad"]:
                    state["max_exp_avg_sq"] = zeros()
            # SGD's first momentum buffer is the gradient itself. A buffer of zeros gives the same result if
            # there is no dampening.
            elif type(optimizer) is torch.optim.SGD and group["momentum"] != 0 and group["dampening"] == 0:
                state["momentum_buffer"] = zeros()
            if state:
                optimizer.state[parameter] = state

"""LLVM assembly to machine code of this processor, and into this process."""

from __future__ import annotations

import importlib.util
from typing import Any

NEEDED = ("llvmlite", "numpy")


def is_installed() -> bool:
    """Whether what compiles can be imported: the extra `scale` has it."""
    return all(importlib.util.find_spec(name) for name in NEEDED)


def host_processor() -> tuple[str, str]:
    """Its name and its features, as LLVM calls them."""
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def target_machine(level: int) -> Any:
    """Compiles for this processor. `level`: 0 compiles thirty times as fast as 2, and what it compiles runs at four fifths."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(*host_processor(), opt=level, reloc="pic", codemodel="jitdefault")


def object_code(text: str, machine: Any, level: int) -> bytes:
    """The assembly, checked and compiled; from level 1 on LLVM's passes make it faster before."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    if level:
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=level))
        builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


def loaded(code: bytes, machine: Any) -> Any:
    """An engine that has the functions of this code. They are in memory while it lives."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine

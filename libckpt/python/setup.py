# SPDX-License-Identifier: Apache-2.0
"""The compiled parts of the wheel: allocator.c, and libckpt.so.1 if tools/wheel has put it there. Neither depends on a
version of Python, so one wheel is enough."""
from setuptools import Extension, setup
from wheel.bdist_wheel import bdist_wheel


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"bdist_wheel": AnyPython},
      ext_modules=[Extension("gpumigrate._allocator", ["gpumigrate/allocator.c"], py_limited_api=True,
                             extra_compile_args=["-std=c11", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"])])

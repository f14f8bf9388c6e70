# SPDX-License-Identifier: Apache-2.0
"""For training loops that are not the program's own: each module imports its framework when it is used."""

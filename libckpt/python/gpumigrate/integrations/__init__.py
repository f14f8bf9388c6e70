# SPDX-License-Identifier: Apache-2.0
"""Modules for training loops that are not the program's own. Each imports its framework when it is used."""

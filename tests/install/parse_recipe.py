"""Renders the recipe for conda-forge with CUDA and without.

    python parse_recipe.py RECIPE

Prints a JSON object for each: name, version, script, and what it needs to build and run. Runs where
py-rattler-build is.
"""

import json
import sys
from pathlib import Path

from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

PLATFORM = PlatformConfig(target_platform="linux-64")


def rendered(text: str, cuda: str) -> dict:
    variants = {"cuda_compiler_version": [cuda], "python": ["3.12.*"], "c_stdlib": ["sysroot"]}
    recipe = Stage0Recipe.from_yaml(text)
    (made,) = recipe.render(
        VariantConfig.from_yaml(json.dumps(variants)), RenderConfig(platform=PLATFORM)
    )
    return made.recipe.to_dict()


for version in ("None", "12.9"):
    print(json.dumps(rendered(Path(sys.argv[1]).read_text(), version)))

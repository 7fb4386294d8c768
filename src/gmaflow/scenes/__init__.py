"""Scenes: training pairs rendered on the CPU or GPU, with their exact flow and occlusion.

renderer = SceneRenderer("mix", size=(368, 496), seed=7, device="cuda")
batch = renderer.render(start=0, count=16)
"""

from gmaflow.scenes.presets import PRESETS
from gmaflow.scenes.renderer import SceneBatch, SceneRenderer
from gmaflow.scenes.textures import TextureBank

__all__ = ["PRESETS", "SceneBatch", "SceneRenderer", "TextureBank"]

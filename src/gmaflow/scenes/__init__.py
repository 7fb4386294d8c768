"""Scenes: training pairs rendered on the CPU or GPU, with exact flow and occlusion.

    renderer = SceneRenderer("mix", size=(368, 496), seed=7, device="cuda")
    batch = renderer.render(start=0, count=16)

`scene_presets` defines the kinds of scenes; `scene_params` draws the parameters of each pair
(`scene_layout`: where things are, `appearance_params`: how they look). `renderer` renders them:
`projection` gives visibility and flow, `render_steps` colours, `photometric_effects` light, lens
and sensor. `texture_bank` holds textures. `scene_dataset` writes data sets, `motion_statistics`
compares them with real ones, `contact_sheet` draws them.
"""

from gmaflow.scenes.renderer import SceneBatch, SceneClip, SceneRenderer
from gmaflow.scenes.scene_presets import PRESETS
from gmaflow.scenes.texture_bank import TextureBank

__all__ = ["PRESETS", "SceneBatch", "SceneClip", "SceneRenderer", "TextureBank"]

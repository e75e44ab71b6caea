"""Real SGLang, recorded: driven in this process on a machine without a GPU (`record.py`), or as a server that runs on its own
(`capture.py`, which `plugin.py` and `launch.py` load into it).

SGLang's processes import this package for the plugin alone, which must cost them nothing: nothing is imported here.
"""

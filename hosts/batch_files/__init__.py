"""Archives on files of rows, in this process or with Ray Data.

Files are planned as chunks (`chunks.py`); a loaded archive scores chunks (`scorer.py`), each to one
file (`results.py`); `job.py` plans, and runs what is missing here, `ray_job.py` with Ray.
"""

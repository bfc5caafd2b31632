"""What setup.cfg cannot say: the packages are those found under primus_app/ and, beside it, the configuration."""

from setuptools import find_namespace_packages, setup

setup(packages=[*find_namespace_packages(include=["primus_app", "primus_app.*"]), "primus_app.conf"])

"""Converts manifests as the user guide writes them to the form that Kubernetes accepts.

selector   the selector of a pod's annotations     dialect     one expression, translated
documents  whole files (needs the YAML library)    vocabulary  the user guide's names
"""

"""What the seed's texts let users write: its form in, the form that Kubernetes accepts out.

selector   the selector of a pod's annotations     dialect     one expression, translated
documents  whole files (needs the YAML library)    vocabulary  the seed's names
"""

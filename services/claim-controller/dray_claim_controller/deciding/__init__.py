"""The one seam where the claim-controller's inputs and pure decisions cross.

``seam`` is the crossing: events go in, questions are asked, answers come out, and a journal, if
there is one, gets all of them. ``observing``, ``executing``, ``templating``, ``opening`` and
``owning`` are the questions, each with its pure answer from the picture and from what it says
itself; ``again`` asks recorded ones again, and ``known`` puts a picture away and takes it out
again.
"""

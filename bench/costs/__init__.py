"""``make costs``: what turns, questions and an idle stack cost, from measured units and a list of prices."""

"""A real federation: Flower's SuperLink and SuperNodes carry tasks and replies between a server and its sites.

`wire.py` says what a message is, `forms.py` what a reply may hold, `roster.py` who is who. At the server, `sites.py` is the
transport, `engine.py` the engine and its session, `greeting.py` what is asked before the first round. At a site, `site.py`
answers and `client_state.py` stores client state. Nothing here opens a connection: that is done by Flower, of which only
`Grid` and `Message` are used.

May import what `engines` may.
"""

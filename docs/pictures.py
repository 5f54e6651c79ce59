#!/usr/bin/env python3
"""Draws the pictures of the guides: `docs/pictures.py` writes src/guide/pictures/*.svg of idempotent-actix
and idempotent-client.

Each picture has a transparent background and follows the reader's color scheme. A page may be dark where the
system is light: shapes are filled, lines have a middle tone, and text outside of a shape has a halo.
"""

import pathlib
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent

STYLE = """
svg{--ink:#1f2328;--halo:#fff;--fill:#f3f5f8;--soft:#57606a;--line:#768390;--blue:#0a5ec2;--green:#1a7f37;--red:#c4232f;--tint:#fff4d6}
@media (prefers-color-scheme:dark){svg{--ink:#e6edf3;--halo:#1d232b;--fill:#2a313a;--soft:#b3bdc8;--blue:#6cb0ff;--green:#57c46b;--red:#ff8077;--tint:#46391a}}
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--ink);stroke:var(--halo);stroke-width:4px;stroke-linejoin:round;paint-order:stroke;text-anchor:middle}
.in{stroke:none}.b{font-weight:600}.s{fill:var(--soft);font-size:12px}.l{text-anchor:start}.r{text-anchor:end}
.blue{fill:var(--blue)}.green{fill:var(--green)}.red{fill:var(--red)}
.box{fill:var(--fill);stroke:var(--line);stroke-width:1.2}.note{fill:var(--tint);stroke:var(--line)}
.life,.a{fill:none;stroke:var(--line)}.life{stroke-dasharray:3 4}.a{stroke-width:1.6;marker-end:url(#h)}.d{stroke-dasharray:6 4}.x{stroke:var(--red);stroke-width:2.4;fill:none}
.run{fill:var(--blue);opacity:.75}#h path{fill:var(--line)}
""".strip().replace("\n", "")

HEAD = (
    '<marker id="h" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse"'
    ' markerUnits="userSpaceOnUse"><path d="M0 0 10 5 0 10z"/></marker>'
)


class Picture:
    """Shapes and texts, written as one SVG."""

    crate = "idempotent-actix"

    def __init__(self, name, title, description, width=740):
        self.name, self.title, self.description, self.width = name, title, description, width
        self.under, self.back, self.front = [], [], []

    def text(self, x, y, words, kind=""):
        kind = f' class="{kind}"' if kind else ""
        self.front.append(f'<text x="{x:g}" y="{y:g}"{kind}>{escape(words)}</text>')

    def path(self, data, kind="a"):
        self.back.append(f'<path d="{data}" class="{kind}"/>')

    def box(self, x, y, width, height, kind="box", radius=6):
        self.back.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" class="{kind}"/>')

    def lines(self, x, y, lines, kind="in", first="in b"):
        """Lines of text, centered at (x, y); the first may look different."""
        top = y - 8.5 * (len(lines) - 1) + 4.5
        for number, line in enumerate(lines):
            self.text(x, top + 17 * number, line, first if number == 0 else kind)

    def write(self, height):
        text = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height:g}" width="{self.width}"'
            f' height="{height:g}" role="img" aria-labelledby="t d"><title id="t">{escape(self.title)}</title>'
            f'<desc id="d">{escape(self.description)}</desc><style>{STYLE}</style>{HEAD}\n'
        )
        text += "\n".join(self.under + self.back + self.front) + "\n</svg>\n"
        assert len(text.encode()) <= 8192, f"{self.name} has {len(text.encode())} bytes"
        target = ROOT / self.crate / "src/guide/pictures"
        target.mkdir(parents=True, exist_ok=True)
        (target / f"{self.name}.svg").write_text(text)


class Sequence(Picture):
    """A sequence diagram with four lanes; time runs downwards."""

    LANES = {"client": (75, "Client"), "layer": (275, "idempotent-actix"), "handler": (465, "Handler"), "store": (655, "Store")}

    def __init__(self, *words):
        super().__init__(*words)
        self.lanes = self.LANES
        self.y = 58

    def lane(self, name):
        return self.LANES[name][0]

    def send(self, source, target, words, kind="", below=""):
        """An arrow with words above it and, smaller, below it."""
        start, end = self.lane(source), self.lane(target)
        self.y += 30
        self.path(f"M{start} {self.y}H{end + (-4 if end > start else 4)}")
        # Between the last two lanes where the arrow crosses one: words stay clear of the handler's
        # lifeline.
        x = 562 if {source, target} == {"layer", "store"} else (start + end) / 2
        self.text(x, self.y - 6, words, kind)
        if below:
            self.text(x, self.y + 15, below, "s")
            self.y += 15

    def reply(self, source, target, words, kind="", below=""):
        before = len(self.back)
        self.send(source, target, words, kind, below)
        self.back[before] = self.back[before].replace('class="a"', 'class="a d"')

    def note(self, lane, lines, width=190):
        self.y += 14
        height = 17 * len(lines) + 9
        self.box(self.lane(lane) - width / 2, self.y, width, height, "note", 4)
        self.lines(self.lane(lane), self.y + height / 2, lines, "in", "in")
        self.y += height + 2

    def run(self, top, bottom=None, lane="handler"):
        """A bar on the handler's lifeline: it is running."""
        bottom = self.y if bottom is None else bottom
        self.box(self.lane(lane) - 4, top, 8, bottom - top, "run", 2)

    def cross(self, lane, words, side="r"):
        self.y += 30
        x = self.lane(lane)
        self.path(f"M{x - 8} {self.y - 8}l16 16m0-16l-16 16", "x")
        self.text(x + (16 if side == "l" else -16), self.y + 4, words, f"red {side}")

    def gap(self, words):
        """Time passes."""
        self.y += 34
        self.text(self.width / 2, self.y, words, "s")
        self.y += 8

    def finish(self):
        for x, words in self.lanes.values():
            width = 8 * len(words) + 26
            self.box(x - width / 2, 12, width, 30)
            self.text(x, 31.5, words, "in b")
            self.under.append(f'<path d="M{x} 42V{self.y + 20}" class="life"/>')
        self.write(self.y + 28)


def first():
    p = Sequence("first", "The first request with a key",
                 "The layer claims the key in the store, the handler runs once, its response is recorded, and only then sent.")
    p.send("client", "layer", "POST /payments", "b", "Idempotency-Key: k-1")
    p.note("layer", ["extractors, scope,", "fingerprint"])
    p.send("layer", "store", "claim", "", "fingerprint, owner token")
    p.reply("store", "layer", "granted, attempt 1", "green")
    p.send("layer", "handler", "call")
    top = p.y
    p.y += 34
    p.reply("handler", "layer", "201 Created")
    p.run(top)
    p.send("layer", "store", "complete", "", "owner token, recording")
    p.reply("store", "layer", "completed", "green")
    p.reply("layer", "client", "201 Created", "b")
    p.finish()


def retry():
    p = Sequence("retry", "A retry after the response was lost",
                 "The key is completed, so the recorded response is replayed and the handler does not run.")
    p.cross("client", "the first response was lost", "l")
    p.send("client", "layer", "POST /payments", "b", "Idempotency-Key: k-1")
    p.note("layer", ["extractors, scope,", "fingerprint"])
    p.send("layer", "store", "claim", "", "fingerprint, owner token")
    p.reply("store", "layer", "completed: recording", "green")
    p.note("handler", ["does not run"], 110)
    p.reply("layer", "client", "201 Created, same body", "b", "Idempotency-Replayed: true")
    p.y += 8
    p.finish()


def in_flight():
    p = Sequence("in_flight", "A duplicate while the first request is in flight",
                 "The duplicate's claim is answered with in flight. It gets 409 after its wait; a later retry gets the replay.")
    p.send("client", "layer", "request, key k-1", "b")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "granted, attempt 1", "green")
    p.send("layer", "handler", "call")
    top = p.y
    p.send("client", "layer", "duplicate, key k-1", "b")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "in flight", "blue")
    p.note("layer", ["waits, if wait is set"])
    p.reply("layer", "client", "409 in_flight", "red", "Retry-After")
    p.reply("handler", "layer", "201 Created")
    p.run(top)
    p.send("layer", "store", "complete")
    p.reply("layer", "client", "201 Created", "b")
    p.send("client", "layer", "duplicate again", "b")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "completed: recording", "green")
    p.reply("layer", "client", "201 Created", "b", "Idempotency-Replayed: true")
    p.finish()


def crash():
    p = Sequence("crash", "The process dies while the handler runs",
                 "The claim's lease expires. With abandoned = retry the next request runs as attempt 2; with hold the key is held.")
    p.send("client", "layer", "request, key k-1", "b")
    p.send("layer", "store", "claim, lease 30 s")
    p.reply("store", "layer", "granted, attempt 1", "green")
    p.send("layer", "handler", "call")
    top = p.y
    p.cross("handler", "the process dies", "l")
    p.run(top)
    p.gap("the lease is no longer renewed; until it expires, retries get 409 in_flight")
    p.send("client", "layer", "retry, key k-1", "b")
    p.send("layer", "store", "claim")
    for policy, color in (('abandoned = "retry"', "green"), ('abandoned = "hold"', "red")):
        p.y += 16
        frame = p.y
        p.text(30, p.y + 19, policy, "in b l")
        p.y += 2
        if color == "green":
            p.reply("store", "layer", "granted, attempt 2", color)
            p.send("layer", "handler", "call", "", "Operation::recovering")
            p.run(p.y - 15, p.y + 32)
            p.y += 2
            p.reply("handler", "layer", "201 Created")
            p.send("layer", "store", "complete")
            p.reply("layer", "client", "201 Created", "b")
        else:
            p.reply("store", "layer", "held", color)
            p.reply("layer", "client", "409 outcome_unknown", color, "until an operator resolves it")
        p.y += 14
        p.under.append(f'<rect x="12" y="{frame:g}" width="{p.width - 24}" height="{p.y - frame:g}" rx="6" class="box"/>')
    p.finish()


def disconnect():
    p = Sequence("disconnect", "The client disconnects while the handler runs",
                 "The operation goes on in a task, is recorded, and the retry gets the replay.")
    p.send("client", "layer", "POST /payments", "b", "Idempotency-Key: k-1")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "granted, attempt 1", "green")
    p.send("layer", "handler", "call")
    top = p.y
    p.cross("client", "the connection is lost", "l")
    p.note("layer", ["the operation moves to a", "task and runs to its end"])
    p.reply("handler", "layer", "201 Created")
    p.run(top)
    p.send("layer", "store", "complete", "", "owner token, recording")
    p.reply("store", "layer", "completed", "green")
    p.send("client", "layer", "POST /payments", "b", "Idempotency-Key: k-1")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "completed: recording", "green")
    p.reply("layer", "client", "201 Created", "b", "Idempotency-Replayed: true")
    p.finish()


def sessions():
    p = Sequence("sessions", "A login and its replay",
                 "Set-Cookie is sent with the first response and never recorded, so a replay does not log anyone in.")
    p.send("client", "layer", "POST /login, key k-1", "b")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "granted, attempt 1", "green")
    p.send("layer", "handler", "call")
    top = p.y
    p.reply("handler", "layer", "200 OK", "", "Set-Cookie: session=…")
    p.run(top, p.y - 15)
    p.send("layer", "store", "complete: recording", "", "without Set-Cookie")
    p.reply("layer", "client", "200 OK", "", "Set-Cookie: session=…")
    p.cross("client", "the response is lost", "l")
    p.send("client", "layer", "POST /login, key k-1", "b")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "completed: recording", "green")
    p.reply("layer", "client", "200 OK, no Set-Cookie", "red", "Idempotency-Replayed: true")
    p.note("client", ["no session:", "log in, new key"], 130)
    p.finish()


def webhook():
    p = Sequence("webhook", "An event that is delivered twice",
                 "The event's id is the key. The second delivery gets the recorded 200; a failed delivery is released and runs again.")
    p.lanes = Sequence.LANES | {"client": (75, "Provider")}
    p.send("client", "layer", "event evt_1", "b", "signed")
    p.note("layer", ["the signature is valid", "key: evt_1"])
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "granted, attempt 1", "green")
    p.send("layer", "handler", "call")
    top = p.y
    p.y += 30
    p.reply("handler", "layer", "200 OK")
    p.run(top)
    p.send("layer", "store", "complete, commit")
    p.reply("layer", "client", "200 OK")
    p.cross("client", "the response is late or lost", "l")
    p.send("client", "layer", "event evt_1 again", "b", "new signature")
    p.note("layer", ["the signature is valid"])
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "completed: recording", "green")
    p.note("handler", ["does not run"], 110)
    p.reply("layer", "client", "200 OK", "b", "Idempotency-Replayed: true")
    p.gap("an event that fails")
    p.send("client", "layer", "event evt_2", "b")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "granted, attempt 1", "green")
    p.send("layer", "handler", "call")
    top = p.y
    p.y += 14
    p.reply("handler", "layer", "503", "red")
    p.run(top)
    p.send("layer", "store", "release", "", "the next delivery runs")
    p.reply("layer", "client", "503", "red")
    p.finish()


def steps():
    p = Sequence("steps", "The process dies between the charge and its record",
                 "The second attempt asks the bank by the same derived key, records what it finds, and does not charge again.")
    p.lanes = Sequence.LANES | {"layer": (275, "Handler"), "handler": (465, "Bank")}
    p.send("client", "layer", "POST /payments", "b", "Idempotency-Key: k-1")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "granted, attempt 1", "green")
    p.note("layer", ['step "charge"'], 120)
    p.send("layer", "handler", "charge, derived key")
    p.reply("handler", "layer", "ch_1")
    p.cross("layer", "the process dies", "r")
    p.gap("until the lease expires, retries get 409 in_flight")
    p.send("client", "layer", "POST /payments", "b", "Idempotency-Key: k-1")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "granted, attempt 2", "green")
    p.note("layer", ['step "charge":', "reconcile"], 120)
    p.send("layer", "handler", "find, same key")
    p.reply("handler", "layer", "Found(ch_1)", "green")
    p.send("layer", "store", "record ch_1")
    p.note("layer", ['step "receipt"', "in the transaction"], 150)
    p.send("layer", "store", "receipt and response", "", "in one commit")
    p.reply("layer", "client", "201 Created", "b")
    p.finish()


def polling():
    p = Sequence("polling", "A duplicate polls for the end of the first request",
                 "With in_flight = poll the duplicate gets 202 and a location. It looks the key up there, and then sends its request again.")
    p.send("client", "layer", "POST /exports", "b", "Idempotency-Key: k-1")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "granted, attempt 1", "green")
    p.send("layer", "handler", "call")
    top = p.y
    p.send("handler", "layer", "progress")
    p.send("layer", "store", "progress", "", "3 of 10")
    p.cross("client", "the client gives up waiting", "l")
    p.send("client", "layer", "POST /exports", "b", "Idempotency-Key: k-1")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "in flight", "blue")
    p.reply("layer", "client", "202 Accepted", "b", "Location, Retry-After")
    p.send("client", "layer", "GET the location", "b")
    p.send("layer", "store", "look up")
    p.reply("store", "layer", "in flight, 3 of 10", "blue")
    p.reply("layer", "client", "200 OK", "b", "state: in_flight")
    p.reply("handler", "layer", "201 Created")
    p.run(top)
    p.send("layer", "store", "complete")
    p.send("client", "layer", "GET the location", "b")
    p.reply("layer", "client", "200 OK", "b", "state: completed")
    p.send("client", "layer", "POST /exports", "b", "Idempotency-Key: k-1")
    p.send("layer", "store", "claim")
    p.reply("store", "layer", "completed: recording", "green")
    p.reply("layer", "client", "201 Created", "b", "Idempotency-Replayed: true")
    p.finish()


def client():
    p = Sequence("client", "A client that survives a lost response and a crash",
                 "The operation is stored before its first attempt. After a lost response and a restart, the same key is sent again, and the server replays its response.")
    p.crate = "idempotent-client"
    p.lanes = {"client": (75, "Application"), "layer": (275, "idempotent-client"), "handler": (465, "File"), "store": (655, "Server")}
    p.send("client", "layer", "order 17", "b", "idempotent(), label")
    p.send("layer", "handler", "store: new key k-1")
    p.send("layer", "store", "POST /orders", "", "Idempotency-Key: k-1")
    p.note("store", ["runs, and records", "the response"], 130)
    p.cross("layer", "the response is lost", "l")
    p.gap("a random pause")
    p.send("layer", "store", "POST /orders", "", "Idempotency-Key: k-1")
    p.cross("client", "the process dies", "l")
    p.gap("after the restart")
    p.send("client", "layer", "resume()", "b")
    p.send("layer", "handler", "what is pending?")
    p.reply("handler", "layer", "order 17, k-1", "blue")
    p.send("layer", "store", "POST /orders", "", "Idempotency-Key: k-1")
    p.reply("store", "layer", "201 Created", "green", "Idempotency-Replayed: true")
    p.reply("layer", "client", "order 17: 201 Created", "b")
    p.send("layer", "handler", "finished")
    p.finish()


def state_machine():
    p = Picture("state_machine", "The states of a record",
                "Absent, in flight, completed and held, and the events that lead from one to the other.", 740)
    places = {"ABSENT": (80, 140), "IN FLIGHT": (370, 140), "COMPLETED": (650, 140), "HELD": (370, 310)}
    for name, (x, y) in places.items():
        p.box(x - 62, y - 24, 124, 48)
        p.text(x, y + 4.5, name, "in b")
    p.path("M142 130H305")
    p.text(224, 122, "claim")
    p.path("M308 150H146")
    p.text(226, 168, "release (owner)")
    p.path("M432 140H585")
    p.text(509, 132, "complete (owner)")
    p.path("M345 116C325 78 415 78 397 113")
    p.text(371, 62, "renew (owner)")
    p.text(371, 79, 'lease expired, abandoned = "retry": claim, attempt + 1', "s")
    p.path("M370 164V283")
    p.text(360, 204, "abandon, or lease expired,", "r")
    p.text(360, 221, 'with abandoned = "hold"', "s r")
    p.path("M432 304C560 299 630 262 645 168")
    p.text(500, 240, "complete (late owner)")
    p.text(500, 258, "resolve: complete")
    p.path("M308 304C180 299 110 262 95 168")
    p.text(236, 265, "resolve: release")
    p.path("M670 116C650 0 100 0 80 113", "a d")
    p.text(371, 22, "ttl expired", "s")
    p.write(346)


def decision_tree():
    p = Picture("decision_tree", "Choosing a store and a claim",
                "Effects in one SQL database: Tx. Otherwise the store follows the number of processes, and abandoned the harm of a second run.", 740)

    def ask(x, y, lines, width=210):
        p.box(x - width / 2, y - 24, width, 48, "note", 24)
        p.lines(x, y, lines, "in", "in")

    def say(x, y, lines, width):
        height = 17 * len(lines) + 13
        p.box(x - width / 2, y - height / 2, width, height)
        p.lines(x, y, lines)

    def branch(data, x, y, words):
        p.path(data)
        p.text(x, y, words, "b")

    ask(370, 40, ["Are all effects of the handler", "in one Postgres or SQLite database?"], 264)
    branch("M238 40H180V97", 208, 32, "yes")
    branch("M502 40H560V97", 532, 32, "no")
    ask(180, 124, ["Does the handler call", "other services, or take long?"], 220)
    ask(560, 124, ["How many processes", "serve the requests?"], 190)
    branch("M110 148V206", 128, 180, "no")
    branch("M250 148V206", 272, 180, "yes")
    say(92, 250, ["Tx<Db>", 'claim = "transaction"', "claim, effects and", "response: one commit"], 160)
    say(270, 250, ["Tx<Db>", 'claim = "lease"', "effects and response:", "one commit"], 160)
    for x, width, lines in (
        (420, 118, ["memory", "one process,", "forgets at exit"]),
        (542, 98, ["SQLite", "one machine,", "one file"]),
        (670, 128, ["Postgres, Redis", "several", "machines"]),
    ):
        p.path(f"M560 148V172H{x}V202")
        say(x, 238, lines, width)
        p.path(f"M{x} 270V294H560V320")
    ask(560, 348, ["Can a second run after a crash", "do harm that derive_key can't prevent?"], 294)
    branch("M460 372V420", 442, 400, "no")
    branch("M655 372V420", 676, 400, "yes")
    say(455, 446, ['abandoned = "retry"', "with Operation::derive_key"], 200)
    say(655, 446, ['abandoned = "hold"', "resolved by an operator"], 164)
    note = ["In every branch a replay is the recorded", "response, and a duplicate in flight waits,", "if wait is set, and then gets 409 in_flight."]
    p.lines(170, 366, note, "s", "s")
    p.write(482)


if __name__ == "__main__":
    for draw in (
        first, retry, in_flight, crash, disconnect, sessions, webhook, steps, polling, client, state_machine, decision_tree
    ):
        draw()

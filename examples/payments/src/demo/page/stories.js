// The stories. Each step is a sentence, and what happens while it is read. `ends` has the numbers
// that each side must have at the end: requests, runs of the handler, charges.

const lost = {
  id: "lost",
  title: "The response is lost",
  teaser: "The payment is made, but its response never arrives.",
  steps: [
    ["The shopper pays €49.00. The server does the work, and the connection breaks before the " +
      "response arrives.",
    (stage) => stage.pay("Pay", { lost: true })],
    ["No response. Did the payment go through? The shopper cannot know, so they press Pay again.",
    (stage) => stage.pay("Pay again")],
  ],
  end: "The second request had the same Idempotency-Key as the first one.",
  because: "the retry got the first response.",
  ends: { bare: "2 2 2", guarded: "2 1 1" },
};

const double = {
  id: "double",
  title: "Double click",
  teaser: "Nothing seems to happen, so the shopper clicks twice.",
  steps: [
    ["The bank takes a moment. The shopper presses Pay.",
    async (stage) => {
      await stage.bank("stuck");
      stage.first = await stage.sendBoth("first click");
      await stage.charged(1);
    }],
    ["Nothing seems to happen, so they press it again.",
    async (stage) => {
      stage.second = await stage.sendBoth("second click");
      [stage.told] = await stage.ended([stage.second[1]]);
      stage.since = performance.now();
      await stage.charged(2, 1);
    }],
    ["The bank responds. With the attribute, the second click was told to come back later (409).",
    async (stage) => {
      await stage.bank("fast");
      await stage.ended([...stage.first, ...stage.second]);
      await stage.key("completed");
    }],
    ["The client waits as long as Retry-After says, sends the second click once more, and gets " +
      "the first response.",
    async (stage) => {
      await stage.retryAfter(stage.told, stage.since);
      await stage.ended([await stage.send("guarded", "second click, again")]);
    }],
  ],
  end: "Both clicks had the same key, and one of them owned it.",
  because: "both clicks got the same response.",
  ends: { bare: "2 2 2", guarded: "3 1 1" },
};

const slow = {
  id: "slow",
  title: "Impatient client",
  teaser: "The bank is slow; the client gives up and sends again.",
  steps: [
    ["The bank is slow today. The shopper presses Pay and waits.",
    async (stage) => {
      await stage.bank("stuck");
      stage.first = await stage.sendBoth("Pay");
      await stage.charged(1);
    }],
    ["Their client has a timeout. It gives up and closes the connection.",
    async (stage) => {
      await Promise.all(stage.first.map((request) => stage.call("give_up", { request })));
      await stage.ended(stage.first);
    }],
    ["It sends the request again, while the bank still works on the first one.",
    async (stage) => {
      stage.second = await stage.sendBoth("retry");
      [stage.told] = await stage.ended([stage.second[1]]);
      stage.since = performance.now();
      await stage.charged(2, 1);
    }],
    ["The bank responds at last. With the attribute, the first request has run to its end, and " +
      "its response was recorded for the client that left.",
    async (stage) => {
      await stage.bank("fast");
      await stage.ended(stage.second);
      await stage.key("completed");
    }],
    ["The client comes back once more, as the 409 has told it, and gets the recorded response.",
    async (stage) => {
      await stage.retryAfter(stage.told, stage.since);
      await stage.ended([await stage.send("guarded", "retry after 409")]);
    }],
  ],
  end: "A client that disconnects does not stop an operation that has begun.",
  because: "the client got the response of the request that it had given up.",
  ends: { bare: "2 2 2", guarded: "3 1 1" },
};

const killed = {
  id: "killed",
  title: "The server is killed",
  teaser: "kill -9 in the middle of a payment, and a restart.",
  steps: [
    ["The shopper pays. The bank books the charge, and the server waits for its response.",
    async (stage) => {
      await stage.bank("stuck");
      stage.first = await stage.sendBoth("Pay");
      await stage.charged(1);
      await stage.key("in_flight");
    }],
    ["At this moment the server is killed. There is no response.",
    async (stage) => {
      await stage.call("kill");
      await stage.ended(stage.first);
    }],
    ["The server is started again. The key is in flight until the lease of the dead process " +
      "expires.",
    async (stage) => {
      await stage.call("restart");
      await stage.bank("fast");
      await stage.key("held");
    }],
    ["The key is held now, because its outcome is unknown. The shopper presses Pay again.",
    (stage) => stage.pay("Pay again")],
  ],
  end: "With the attribute, the handler did not run again. Now you are the operator: open the key " +
    "in the console below, and complete it with the charge that the bank’s books have. Then press " +
    "Pay: the shopper gets that response. (This handler has abandoned = \"hold\". With \"retry\" " +
    "it would run again after a crash.)",
  because: "the key is held until somebody knows its outcome.",
  ends: { bare: "2 2 2", guarded: "2 1 1" },
};

const amount = {
  id: "amount",
  title: "Another amount",
  teaser: "A client with a bug reuses the key for a different request.",
  steps: [
    ["The shopper pays €49.00.",
    (stage) => stage.pay("€49.00")],
    ["A client with a bug sends €94.00 with the same key.",
    (stage) => stage.pay("€94.00", { amount: 9400 })],
  ],
  end: "A key belongs to one request. Another body with the same key gets 422.",
  because: "the other request was refused, and did not see the first response.",
  ends: { bare: "2 2 2", guarded: "2 1 1" },
};

const tabs = {
  id: "tabs",
  title: "Two tabs at once",
  teaser: "The same order is open in two tabs, and both pay.",
  steps: [
    ["The same order is open in two tabs. Its key belongs to the order, so both tabs have it.",
    (stage) => stage.bank("stuck")],
    ["Both tabs pay at the same time.",
    async (stage) => {
      const names = ["tab A", "tab B"];
      stage.all = await Promise.all(names.map((name) => stage.sendBoth(name)));
      await stage.charged(2, 1);
      const refused = ({ guarded }) => guarded.requests.find(({ seen }) => seen?.status === 409);
      await stage.until(refused);
      await stage.until((state) => (stage.told = refused(state)));
      stage.since = performance.now();
    }],
    ["The bank responds. With the attribute, one tab has paid, and the other one got 409.",
    async (stage) => {
      await stage.bank("fast");
      await stage.ended(stage.all.flat());
      await stage.key("completed");
    }],
    ["The other tab asks again, and shows the same payment.",
    async (stage) => {
      await stage.retryAfter(stage.told, stage.since);
      await stage.ended([await stage.send("guarded", `${stage.told.label}, again`)]);
    }],
  ],
  end: "It does not matter which tab was first: one of them owned the key.",
  because: "both tabs show the same payment.",
  ends: { bare: "2 2 2", guarded: "3 1 1" },
};

const down = {
  id: "down",
  title: "The bank is down",
  teaser: "A failure must not stick to the key.",
  steps: [
    ["The bank is down. The shopper pays, and both servers respond with 503: nothing was charged.",
    async (stage) => {
      await stage.bank("down");
      await stage.pay("Pay");
      await stage.key("absent");
    }],
    ["The bank is back. The key was released, so the same key may run the handler again.",
    async (stage) => {
      await stage.bank("fast");
      await stage.pay("Pay again");
      await stage.key("completed");
    }],
    ["The shopper is not sure that it worked, and presses Pay once more.",
    (stage) => stage.pay("Pay, third time")],
  ],
  end: "A failure that charged nothing is not recorded. A success is, and it is replayed.",
  because: "the failure did not stick to the key, and the success was replayed.",
  ends: { bare: "3 3 2", guarded: "3 2 1" },
};

export const stories = [lost, double, slow, killed, amount, tabs, down];

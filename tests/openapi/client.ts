// Pays with the client that @hey-api/openapi-ts has generated. Until a response arrives, it sends
// the same request with the same key: `client.js URL KEY`.
import { createPaymentIntent } from "./generated";

async function main(url: string, key: string) {
  for (let attempt = 0; attempt < 3; attempt++) {
    const { data, response } = await createPaymentIntent({
      baseUrl: url,
      auth: "sk_test_alice",
      headers: { "Idempotency-Key": key },
      body: { amount: 2000, currency: "usd", payment_method: "pm_card_visa", confirm: true },
    });
    if (!response) {
      console.log("cut");
      continue;
    }
    const replayed = response.headers.get("Idempotency-Replayed") ?? "false";
    console.log(response.status, data?.id, replayed);
    return;
  }
}

main(process.argv[2], process.argv[3]);

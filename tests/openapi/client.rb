# Pays with the client that OpenAPI Generator has generated. Until a response arrives, it sends the
# same request with the same key: `client.rb URL KEY`.

require "payments_client"

url, key = ARGV
PaymentsClient.configure do |config|
  config.scheme = "http"
  config.host = url.delete_prefix("http://")
  config.server_index = nil
  config.base_path = ""
  config.access_token = "sk_test_alice"
end
order = PaymentsClient::PaymentOrder.new(
  amount: 2000, currency: "usd", payment_method: "pm_card_visa", confirm: true
)
api = PaymentsClient::PaymentsApi.new
3.times do
  payment, status, headers = api.create_payment_intent_with_http_info(key, order)
  puts "#{status} #{payment.id} #{headers["Idempotency-Replayed"] || "false"}"
  break
rescue PaymentsClient::ApiError => error
  raise unless error.code.to_i.zero?
  puts "cut"
end

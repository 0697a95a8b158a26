#include "lockstep/receipt/envelope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/json_input.h"
#include "lockstep/receipt/signature.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::string_view kPayloadType = "application/vnd.in-toto+json";
constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) word = word << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += k <= n ? kBase64[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// Accepts exactly what to_base64() writes, with padding.
std::string from_base64(const std::string& text, std::string_view what) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  bool ok = text.size() % 4 == 0;
  for (std::size_t i = 0; ok && i < text.size(); i += 4) {
    std::uint32_t word = 0;
    std::size_t digits = 0;
    for (; digits < 4; ++digits) {
      const std::size_t value = kBase64.find(text[i + digits]);
      if (value == kBase64.npos) break;
      word |= static_cast<std::uint32_t>(value) << (18 - 6 * digits);
    }
    const bool last = i + 4 == text.size();
    ok = digits >= (last ? 2 : 4) && text.find_first_not_of('=', i + digits) >= i + 4;
    for (std::size_t k = 0; ok && k + 1 < digits; ++k) bytes += static_cast<char>(word >> (16 - 8 * k));
  }
  check(ok && to_base64(bytes) == text, "{} is not base64", what);
  return bytes;
}

const std::string& text_at(const json& object, const char* name) {
  check(object.is_object() && object.contains(name) && object.at(name).is_string(), "{}: expected a text", name);
  return object.at(name).get_ref<const std::string&>();
}

}  // namespace

std::string envelope_message(std::string_view payload) {
  return fmt::format("DSSEv1 {} {} {} {}", kPayloadType.size(), kPayloadType, payload.size(), payload);
}

std::string sign_envelope(std::string_view payload, std::string_view private_key, std::string_view key_origin) {
  const Signature signature = sign_ed25519(private_key, key_origin, envelope_message(payload));
  return fmt::format(
      "{{\n\"payloadType\": \"{}\",\n\"signatures\": [{{\"keyid\": \"{}\", \"sig\": \"{}\"}}],\n\"payload\": "
      "\"{}\"\n}}\n",
      kPayloadType, signature.key_id, to_base64(signature.bytes), to_base64(payload));
}

OpenedEnvelope open_envelope(std::string_view text, std::string_view origin, std::string_view public_key) {
  OpenedEnvelope opened;
  std::string signature;
  try {
    const json envelope = parse_json<json>(text, {.what = "it", .depth = 4, .names = 8});
    check(envelope.is_object() && envelope.size() == 3, "expected payloadType, payload, and signatures");
    check(text_at(envelope, "payloadType") == kPayloadType, "payloadType is {}, expected {}",
          excerpt(envelope.at("payloadType")), kPayloadType);
    check(envelope.contains("signatures") && envelope.at("signatures").is_array() &&
              envelope.at("signatures").size() == 1 && envelope.at("signatures")[0].is_object(),
          "expected one signature");
    const json& signed_by = envelope.at("signatures")[0];
    opened.key_id = text_at(signed_by, "keyid");
    check(opened.key_id.size() == 64 && opened.key_id.find_first_not_of("0123456789abcdef") == std::string::npos,
          "keyid is {}, expected 64 hexadecimal digits", excerpt(signed_by.at("keyid")));
    signature = from_base64(text_at(signed_by, "sig"), "sig");
    opened.payload = from_base64(text_at(envelope, "payload"), "payload");
  } catch (const json::exception& error) {
    fail("{}: {}", origin, excerpt(json(error.what())));
  } catch (const Error& error) {
    fail("{}: the envelope: {}", origin, error.what());
  }
  if (public_key.empty()) return opened;
  const std::string expected = public_key_id(public_key, "public key");
  check(opened.key_id == expected, "{}: signed with the key {:.16}…, expected {:.16}…, which is the public key", origin,
        opened.key_id, expected);
  check(verify_ed25519(public_key, "public key", envelope_message(opened.payload), signature),
        "{}: the signature does not fit: the receipt was changed after it was signed with the key {:.16}…", origin,
        opened.key_id);
  return opened;
}

}  // namespace lockstep

#include "lockstep/net/store_protocol.h"

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/hmac.h"

namespace lockstep {
namespace {

// Request: operation (1 byte), 0, key size (2), value size (4), timeout (4), key, value.
// Reply: status (1 byte), 0, 0, 0, value size (4), value.
constexpr std::size_t kRequestHeader = 12, kReplyHeader = 8;

void append(std::string& bytes, std::uint32_t value, int size) {
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

std::uint32_t number(const std::string& bytes, std::size_t at, std::size_t size) {
  std::uint32_t value = 0;
  for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// Returns the size of the message at the front; 0 while the header is incomplete.
std::size_t size_of_request(const std::string& bytes) {
  if (bytes.size() < kRequestHeader) return 0;
  const std::uint32_t operation = number(bytes, 0, 2);
  const std::size_t key_size = number(bytes, 2, 2), value_size = number(bytes, 4, 4);
  check(operation >= 1 && operation <= 4, "store: a request of kind {}, expected from 1 to 4", operation);
  check(key_size >= 1 && key_size <= kLongestStoreKey, "store: a request with a key of {} bytes, expected from 1 to {}",
        key_size, kLongestStoreKey);
  check(value_size <= kLongestStoreValue, "store: a request with a value of {} bytes, expected at most {}", value_size,
        kLongestStoreValue);
  return kRequestHeader + key_size + value_size;
}

std::size_t size_of_reply(const std::string& bytes) {
  if (bytes.size() < kReplyHeader) return 0;
  const std::uint32_t status = number(bytes, 0, 4);
  const std::size_t value_size = number(bytes, 4, 4);
  check(status >= 1 && status <= 3, "store: a reply with status {}, expected from 1 to 3", status);
  check(value_size <= kLongestStoreValue, "store: a reply of {} bytes, expected at most {}", value_size,
        kLongestStoreValue);
  return kReplyHeader + value_size;
}

// Checks and removes the tag after the first `size` bytes. Returns false while the tag is incomplete.
bool take_tag(std::string& bytes, std::size_t size, MessageMac& mac) {
  MessageMac::Tag tag;
  if (size == 0 || bytes.size() < size + tag.size()) return false;
  std::memcpy(tag.data(), bytes.data() + size, tag.size());
  mac.update(bytes.data(), size);
  check(mac.finish_with(tag), "store: a message has a wrong tag: changed on the way, or forged");
  bytes.erase(size, tag.size());
  return true;
}

std::string keyed(std::string_view secret, std::string_view label, std::string_view server, std::string_view client) {
  std::string message(label);
  message.append(server).append(client);
  return hmac_sha256(secret, message);
}

}  // namespace

std::string store_client_hmac(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce) {
  return keyed(secret, "lockstep store client", server_nonce, client_nonce);
}

std::string store_server_hmac(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce) {
  return keyed(secret, "lockstep store server", server_nonce, client_nonce);
}

MessageMac store_request_tags(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce) {
  return MessageMac(keyed(secret, "lockstep store requests", server_nonce, client_nonce));
}

MessageMac store_reply_tags(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce) {
  return MessageMac(keyed(secret, "lockstep store replies", server_nonce, client_nonce));
}

std::string with_tag(std::string message, MessageMac& mac) {
  mac.update(message.data(), message.size());
  const MessageMac::Tag tag = mac.finish();
  return message.append(reinterpret_cast<const char*>(tag.data()), tag.size());
}

std::string encode(const StoreRequest& request) {
  check(!request.key.empty() && request.key.size() <= kLongestStoreKey,
        "store: a key of {} bytes, expected from 1 to {}", request.key.size(), kLongestStoreKey);
  check(request.value.size() <= kLongestStoreValue, "store: the value of \"{}\" has {} bytes, expected at most {}",
        request.key, request.value.size(), kLongestStoreValue);
  std::string bytes;
  bytes.reserve(kRequestHeader + request.key.size() + request.value.size());
  append(bytes, static_cast<std::uint8_t>(request.operation), 2);
  append(bytes, static_cast<std::uint32_t>(request.key.size()), 2);
  append(bytes, static_cast<std::uint32_t>(request.value.size()), 4);
  append(bytes, request.timeout_ms, 4);
  return bytes.append(request.key).append(request.value);
}

std::string encode(const StoreReply& reply) {
  std::string bytes;
  append(bytes, static_cast<std::uint8_t>(reply.status), 4);
  append(bytes, static_cast<std::uint32_t>(reply.value.size()), 4);
  return bytes.append(reply.value);
}

std::optional<StoreRequest> take_request(std::string& bytes) {
  const std::size_t size = size_of_request(bytes);
  if (size == 0 || bytes.size() < size) return {};
  const std::size_t key_size = number(bytes, 2, 2);
  StoreRequest request{.operation = static_cast<StoreOperation>(number(bytes, 0, 2)),
                       .timeout_ms = number(bytes, 8, 4),
                       .key = bytes.substr(kRequestHeader, key_size),
                       .value = bytes.substr(kRequestHeader + key_size, size - kRequestHeader - key_size)};
  bytes.erase(0, size);
  return request;
}

std::optional<StoreReply> take_reply(std::string& bytes) {
  const std::size_t size = size_of_reply(bytes);
  if (size == 0 || bytes.size() < size) return {};
  StoreReply reply{.status = static_cast<StoreStatus>(number(bytes, 0, 4)),
                   .value = bytes.substr(kReplyHeader, size - kReplyHeader)};
  bytes.erase(0, size);
  return reply;
}

std::optional<StoreRequest> take_request(std::string& bytes, MessageMac& mac) {
  if (!take_tag(bytes, size_of_request(bytes), mac)) return {};
  return take_request(bytes);
}

std::optional<StoreReply> take_reply(std::string& bytes, MessageMac& mac) {
  if (!take_tag(bytes, size_of_reply(bytes), mac)) return {};
  return take_reply(bytes);
}

}  // namespace lockstep

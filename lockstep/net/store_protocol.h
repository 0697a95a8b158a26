// Internal: the messages between a TcpStore and its server. These functions are pure: no sockets, no clock, no state.
//
// The server begins with a greeting that holds a fresh nonce. The client proves that it knows the secret by an HMAC of
// that nonce and its own, and the server's answer proves the same to the client. Labels keep the two proofs distinct.
// Then the client sends requests, one at a time, and reads the reply to each. A tag follows each request and reply; its
// key is known to these two alone. Nothing is encrypted.
//
// Integers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/message_mac.h"

namespace lockstep {

inline constexpr std::size_t kLongestStoreKey = 1024;
inline constexpr std::size_t kLongestStoreValue = std::size_t{1} << 20;

// The handshake.
inline constexpr std::string_view kStoreMagic = "lockstep store 2";
inline constexpr std::size_t kStoreNonceBytes = 32;
inline constexpr std::size_t kStoreGreetingBytes = kStoreMagic.size() + kStoreNonceBytes;  // magic, nonce
inline constexpr std::size_t kStoreProofBytes = kStoreNonceBytes + 32;                     // nonce, HMAC
inline constexpr std::size_t kStoreAnswerBytes = 1 + 32;                                   // verdict, HMAC
inline constexpr char kStoreAccepts = 'a', kStoreRefuses = 'r';

std::string store_client_hmac(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce);
std::string store_server_hmac(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce);

// Tags of the messages after the handshake, in each direction.
MessageMac store_request_tags(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce);
MessageMac store_reply_tags(std::string_view secret, std::string_view server_nonce, std::string_view client_nonce);
// Returns the message with its tag.
std::string with_tag(std::string message, MessageMac& mac);

enum class StoreOperation : std::uint8_t { set = 1, get = 2, add = 3, contains = 4 };

struct StoreRequest {
  StoreOperation operation = StoreOperation::get;
  std::uint32_t timeout_ms = 0;  // for get
  std::string key = {};
  std::string value = {};  // for set; for add, the decimal amount
  bool operator==(const StoreRequest&) const = default;
};

// `missing` is a reply to get and contains. With `failed`, the value holds the reason.
enum class StoreStatus : std::uint8_t { ok = 1, missing = 2, failed = 3 };

struct StoreReply {
  StoreStatus status = StoreStatus::ok;
  std::string value = {};
  bool operator==(const StoreReply&) const = default;
};

std::string encode(const StoreRequest& request);
std::string encode(const StoreReply& reply);

// Removes the message at the front of `bytes` and returns it; returns nothing while the message is incomplete. Throws
// as soon as the header (12 bytes of a request, 8 of a reply) cannot be valid, so it never waits or allocates memory
// for a length above the limits.
std::optional<StoreRequest> take_request(std::string& bytes);
std::optional<StoreReply> take_reply(std::string& bytes);
// Do the same for a message with its tag. Throw if the tag is wrong.
std::optional<StoreRequest> take_request(std::string& bytes, MessageMac& mac);
std::optional<StoreReply> take_reply(std::string& bytes, MessageMac& mac);

}  // namespace lockstep

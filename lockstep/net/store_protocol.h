// The bytes between a TcpStore and its server. Pure functions: no sockets, no clock, no state.
//
// The server begins: a greeting with a number that it never used before. The client proves that it knows the secret by
// an HMAC of that number and one of its own, and the server's answer proves the same to the client; labels keep one
// side's proof from passing for the other's. Then the client sends one request at a time and reads one reply. What
// follows the handshake is neither encrypted nor signed.
//
// Numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::size_t kLongestStoreKey = 1024;
inline constexpr std::size_t kLongestStoreValue = std::size_t{1} << 20;

// The handshake.
inline constexpr std::string_view kStoreMagic = "lockstep store 1";
inline constexpr std::size_t kStoreNonceBytes = 32;
inline constexpr std::size_t kStoreGreetingBytes = kStoreMagic.size() + kStoreNonceBytes;  // magic, nonce
inline constexpr std::size_t kStoreProofBytes = kStoreNonceBytes + 32;                     // nonce, HMAC
inline constexpr std::size_t kStoreAnswerBytes = 1 + 32;                                   // verdict, HMAC
inline constexpr char kStoreAccepts = 'a', kStoreRefuses = 'r';

std::string store_client_hmac(std::string_view secret, std::string_view server_nonce,
                              std::string_view client_nonce);
std::string store_server_hmac(std::string_view secret, std::string_view server_nonce,
                              std::string_view client_nonce);

enum class StoreOperation : std::uint8_t { set = 1, get = 2, add = 3, contains = 4 };

struct StoreRequest {
  StoreOperation operation = StoreOperation::get;
  std::uint32_t timeout_ms = 0;  // of get
  std::string key = {};
  std::string value = {};  // of set; of add: the amount, decimal
  bool operator==(const StoreRequest&) const = default;
};

// missing: of get and contains. failed: the value says why.
enum class StoreStatus : std::uint8_t { ok = 1, missing = 2, failed = 3 };

struct StoreReply {
  StoreStatus status = StoreStatus::ok;
  std::string value = {};
  bool operator==(const StoreReply&) const = default;
};

std::string encode(const StoreRequest& request);
std::string encode(const StoreReply& reply);

// Removes the message at the front of `bytes` and returns it; nothing while it is not whole. Throws what was found
// and expected if it cannot become one, and does so as soon as its first 12 (a reply's 8) bytes are there: no length
// that it claims is ever waited for or allocated beyond the limits above.
std::optional<StoreRequest> take_request(std::string& bytes);
std::optional<StoreReply> take_reply(std::string& bytes);

}  // namespace lockstep

#include "lockstep/net/peer_handshake.h"

#include "lockstep/base/hmac.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "lspeer02";
constexpr std::size_t kNonceBytes = 16;

std::string packed(std::uint32_t value) {
  std::string bytes(4, '\0');
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

std::uint32_t unpacked(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

}  // namespace

PeerHandshake::PeerHandshake(std::string_view key, std::uint32_t client, std::uint32_t server, std::uint32_t connection)
    : key_(key), client_(client), server_(server), connection_(connection), client_nonce_(random_bytes(kNonceBytes)),
      server_nonce_(random_bytes(kNonceBytes)) {}

std::string PeerHandshake::hello() const {
  return std::string(kMagic) + packed(client_) + packed(connection_) + client_nonce_;
}

bool PeerHandshake::parse_hello(std::string_view hello, std::uint32_t& client, std::uint32_t& connection) {
  if (hello.size() != kHelloBytes || !hello.starts_with(kMagic)) return false;
  client = unpacked(hello.substr(8, 4));
  connection = unpacked(hello.substr(12, 4));
  return true;
}

std::string PeerHandshake::answer(std::string_view hello) {
  client_nonce_ = hello.substr(kHelloBytes - kNonceBytes);
  return server_nonce_ + mac("server");
}

bool PeerHandshake::check_answer(std::string_view answer) {
  server_nonce_ = answer.substr(0, kNonceBytes);
  return answer.size() == kAnswerBytes && equal_in_constant_time(answer.substr(kNonceBytes), mac("server"));
}

bool PeerHandshake::check_proof(std::string_view proof) const { return equal_in_constant_time(proof, mac("client")); }

std::string PeerHandshake::mac(std::string_view side) const {
  return hmac_sha256(key_, std::string(kMagic) + packed(client_) + packed(server_) + packed(connection_) +
                               client_nonce_ + server_nonce_ + std::string(side));
}

}  // namespace lockstep

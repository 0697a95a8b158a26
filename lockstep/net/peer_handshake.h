// Two ranks exchange these messages before they trust a connection. Knows no sockets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// client: hello, with a random number. server: another one, and HMAC(key, both, "server"). client: HMAC(key, both,
// "client"). server: one byte. A recorded answer fits no other numbers.
class PeerHandshake {
 public:
  static constexpr std::size_t kHelloBytes = 32, kAnswerBytes = 48, kProofBytes = 32, kWelcomeBytes = 1;

  // Rank `client` calls rank `server`; `connection` numbers their connections.
  PeerHandshake(std::string_view key, std::uint32_t client, std::uint32_t server, std::uint32_t connection);

  // The client's part.
  std::string hello() const;
  bool check_answer(std::string_view answer);
  std::string proof() const { return mac("client"); }

  // The server's.
  static bool parse_hello(std::string_view hello, std::uint32_t& client, std::uint32_t& connection);
  std::string answer(std::string_view hello);
  bool check_proof(std::string_view proof) const;

 private:
  std::string mac(std::string_view side) const;

  std::string key_;
  std::uint32_t client_, server_, connection_;
  std::string client_nonce_, server_nonce_;
};

}  // namespace lockstep

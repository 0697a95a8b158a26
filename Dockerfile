# An image with the tool and Fashion-MNIST, as the Kubernetes example of docs/distributed.md runs it:
#
#   docker build -t registry.example.com/lockstep:latest .
#   docker run --rm registry.example.com/lockstep:latest lockstep train --model lenet --epochs 1
#
# For CPUs. Built and run with buildah 1.28 (2026-11-23, on a debootstrapped Debian 12); never with Docker.
# By digest, so that the same file always means the same image.
FROM debian:bookworm-20260918@sha256:f37a335e82bca302e955fa39f9dfe28f1be618f016f8a2b56318e5a5111afc26 AS build
ENV DEBIAN_FRONTEND=noninteractive
COPY scripts/packages.txt /tmp/packages.txt
RUN apt-get -qq update \
    && apt-get -qq install -y --no-install-recommends $(sed 's/#.*//' /tmp/packages.txt) \
    && rm -rf /var/lib/apt/lists/*
COPY . /source
WORKDIR /source
RUN cmake --preset release -B /build -DLOCKSTEP_CUDA=OFF -DLOCKSTEP_PYTHON=OFF -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_EXAMPLES=OFF \
    && cmake --build /build \
    && cmake --install /build --prefix /usr/local --strip

FROM debian:bookworm-20260918@sha256:f37a335e82bca302e955fa39f9dfe28f1be618f016f8a2b56318e5a5111afc26
RUN apt-get -qq update \
    && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
       dataset-fashion-mnist libdnnl2 libfmt9 libgomp1 libhwloc15 libjpeg62-turbo libopenmpi3 libpng16-16 libssl3 zlib1g \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local /usr/local
# A shell-form command of a Job replaces this one.
CMD ["lockstep", "--help"]

"""Signatures of files, whole process: CMS beside `openssl cms -sign`, PDF beside pyHanko's command."""
import os
import subprocess
import time

import ratios


def make_pdf(path, size):
    """A PDF with one page and a stream of so many bytes."""
    with open(path, "wb") as file:
        file.write(b"%PDF-1.7\n")
        offsets = []
        for body in (b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
                     b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]>>"):
            offsets.append(file.tell())
            file.write(b"%d 0 obj\n%s\nendobj\n" % (len(offsets), body))
        offsets.append(file.tell())
        file.write(b"4 0 obj\n<</Length %d>>\nstream\n" % size)
        piece = os.urandom(1 << 20)
        for start in range(0, size, len(piece)):
            file.write(piece[:size - start])
        file.write(b"\nendstream\nendobj\n")
        table = file.tell()
        file.write(b"xref\n0 5\n0000000000 65535 f \n")
        for offset in offsets:
            file.write(b"%010d 00000 n \n" % offset)
        file.write(b"trailer\n<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % table)


def signing(bin, pyhanko, env, work, in_turns, shown, peak_memory):
    identity = ["--provider", "pem", "--set", "certificate=chain.pem", "--set", "key=key.pem", "--force"]
    print("Signatures of files, P-256, whole process")
    for name, size, rounds in (("1 MB", 1 << 20, 20), ("150 MB", 150 << 20, 3)):
        make_pdf(f"{work}/file.pdf", size)
        commands = {
            "cms": [f"{bin}/certprov", "sign", "cms", *identity, "--out", "own.p7s", "file.pdf"],
            "openssl": ["openssl", "cms", "-sign", "-cades", "-binary", "-signer", "certificate.pem", "-inkey", "key.pem", "-certfile",
                        "ca.pem", "-md", "sha256", "-outform", "DER", "-in", "file.pdf", "-out", "peer.p7s"],
            "pdf": [f"{bin}/certprov", "sign", "pdf", *identity, "--out", "own.pdf", "file.pdf"],
        }
        if pyhanko:
            commands["pyhanko"] = [pyhanko, "sign", "addsig", "--field", "Signature1", "--use-pades", "pemder", "--key", "key.pem",
                                   "--cert", "certificate.pem", "--chain", "ca.pem", "--no-pass", "file.pdf", "peer.pdf"]
        times = in_turns(commands, env, work, rounds=rounds)
        for own, peer, what in (("cms", "openssl", "openssl cms -sign"), ("pdf", "pyhanko", "pyHanko")):
            if peer not in times:
                continue
            print(f"  {name}: certprov sign {own} {shown(times[own])}, {what} {shown(times[peer])}:"
                  f" {ratios.of_times(times[own], times[peer])}; peak memory"
                  f" {peak_memory(commands[own], env, work, rounds=1):.0f} MiB and"
                  f" {peak_memory(commands[peer], env, work, rounds=1):.0f} MiB")
    long_term(bin, pyhanko, env, work, in_turns, shown)


def long_term(bin, pyhanko, env, work, in_turns, shown):
    """PDF of level B-LT: the time with servers on this host, and what the level adds to the document."""
    folder = f"{work}/ca"
    os.mkdir(folder, 0o700)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Tests", "SigningTests", "ca.py")
    with subprocess.Popen(["python3", script, folder], stdin=subprocess.PIPE) as servers:
        while not os.path.exists(f"{folder}/port"):
            if servers.poll() is not None:
                raise SystemExit("ca.py has ended")
            time.sleep(0.05)
        with open(f"{folder}/port") as file:
            stamps = f"http://127.0.0.1:{file.read()}/tsa"
        os.chmod(f"{folder}/signer.key", 0o600)
        make_pdf(f"{work}/small.pdf", 1 << 10)
        own = [f"{bin}/certprov", "sign", "pdf", "--provider", "pem", "--set", f"certificate={folder}/signer.pem", "--set",
               f"key={folder}/signer.key", "--set", "usage=signature", "--force", "--time-stamp", stamps, "--time-stamp-anchors",
               f"{folder}/ca.pem", "small.pdf"]
        commands = {level: [*own, "--level", level, "--out", f"{level}.pdf"] for level in ("b-t", "b-lt")}
        if pyhanko:
            commands["pyhanko"] = [pyhanko, "sign", "addsig", "--field", "Signature1", "--use-pades", "--with-validation-info", "--trust",
                                   f"{folder}/root.pem", "--other-certs", f"{folder}/ca.pem", "--timestamp-url", stamps, "pemder",
                                   "--key", f"{folder}/signer.key", "--cert", f"{folder}/signer.pem", "--chain", f"{folder}/ca.pem",
                                   "--no-pass", "small.pdf", "peer-lt.pdf"]
        times = in_turns(commands, env, work, rounds=10)
        servers.stdin.close()
    sizes = {level: os.path.getsize(f"{work}/{level}.pdf") for level in ("b-t", "b-lt")}
    print(f"  B-LT: certprov sign pdf {shown(times['b-lt'])}, B-T {shown(times['b-t'])}:"
          f" {ratios.of_times(times['b-lt'], times['b-t'])}; {sizes['b-lt'] - sizes['b-t']} bytes more")
    if pyhanko:
        print(f"  B-LT: certprov sign pdf {shown(times['b-lt'])}, pyHanko {shown(times['pyhanko'])}:"
              f" {ratios.of_times(times['b-lt'], times['pyhanko'])}")

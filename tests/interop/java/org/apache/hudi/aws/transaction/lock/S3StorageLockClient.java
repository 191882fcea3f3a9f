package org.apache.hudi.aws.transaction.lock;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Properties;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;

/** In the place of Hudi's own client: asks the test, by conditional requests, to read and write the store. */
public class S3StorageLockClient implements StorageLockClient {
  private final HttpClient http = HttpClient.newHttpClient();
  private final URI lock;

  public S3StorageLockClient(String owner, String lockFile, Properties properties) {
    lock = URI.create(System.getProperty("test.store") + "/" + URI.create(lockFile).getPath());
  }

  @Override
  public Pair<LockUpsertResult, Option<StorageLockFile>> tryUpsertLockFile(
      StorageLockData wanted, Option<StorageLockFile> seen) {
    byte[] content = StorageLockFile.toByteArray(wanted);
    HttpRequest.Builder put = HttpRequest.newBuilder(lock).PUT(BodyPublishers.ofByteArray(content));
    put = seen.isPresent() ? put.header("If-Match", seen.get().getVersionId()) : put.header("If-None-Match", "*");
    HttpResponse<byte[]> answer = send(put.build());
    if (answer.statusCode() == 412) {
      return Pair.of(LockUpsertResult.ACQUIRED_BY_OTHERS, Option.empty());
    }
    if (answer.statusCode() != 200) {
      return Pair.of(LockUpsertResult.UNKNOWN_ERROR, Option.empty());
    }
    return Pair.of(LockUpsertResult.SUCCESS, Option.of(new StorageLockFile(wanted, version(answer))));
  }

  @Override
  public Pair<LockGetResult, Option<StorageLockFile>> readCurrentLockFile() {
    HttpResponse<byte[]> answer = send(HttpRequest.newBuilder(lock).GET().build());
    if (answer.statusCode() == 404) {
      return Pair.of(LockGetResult.NOT_EXISTS, Option.empty());
    }
    if (answer.statusCode() != 200) {
      return Pair.of(LockGetResult.UNKNOWN_ERROR, Option.empty());
    }
    ByteArrayInputStream content = new ByteArrayInputStream(answer.body());
    return Pair.of(
        LockGetResult.SUCCESS, Option.of(StorageLockFile.createFromStream(content, version(answer))));
  }

  @Override
  public Option<String> readObject(String path, boolean checkExistsFirst) {
    return Option.empty();
  }

  @Override
  public boolean writeObject(String path, String content) {
    return false;
  }

  @Override
  public void close() {}

  private static String version(HttpResponse<byte[]> answer) {
    return answer.headers().firstValue("ETag").orElseThrow();
  }

  private HttpResponse<byte[]> send(HttpRequest request) {
    try {
      return http.send(request, BodyHandlers.ofByteArray());
    } catch (IOException | InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }
}

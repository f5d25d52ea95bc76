import {
  Body,
  CallHandler,
  Catch,
  Controller,
  createParamDecorator,
  Delete,
  ExecutionContext,
  ForbiddenException,
  Get,
  HttpCode,
  Post,
  Res,
  SetMetadata,
  Sse,
  StreamableFile,
  UseFilters,
  UseInterceptors,
  ValidationPipe,
  type ArgumentsHost,
  type ExceptionFilter,
  type NestInterceptor,
} from '@nestjs/common';
import { IsInt } from 'class-validator';
import { Idempotent, NotIdempotent } from 'nestjs-idempotency';
import { Readable } from 'node:stream';
import { delay, map, of, timeout, type Observable } from 'rxjs';
import { Gate, runs } from './gate.js';

export class OrderDto {
  @IsInt()
  amount!: number;
}

class SoldOut extends Error {}

/** What handlers need of both platforms' responses. */
interface Answer {
  status(code: number): Answer;
  header(name: string, value: string): Answer;
  send(body: unknown): unknown;
}

@Catch(SoldOut)
class SoldOutFilter implements ExceptionFilter {
  catch(_error: SoldOut, host: ArgumentsHost): void {
    const answer = host.switchToHttp().getResponse<Answer>();
    answer.status(410).header('x-reason', 'sold-out').send({ soldOut: true });
  }
}

class FailAfterwards implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(
      map(() => {
        throw new Error('The answer could not be made.');
      }),
    );
  }
}

class Impatient implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(timeout(50));
  }
}

const Member = createParamDecorator((_data: unknown, context: ExecutionContext) => {
  const { headers } = context.switchToHttp().getRequest<{ headers: Record<string, string> }>();
  if (headers['x-member'] === undefined) throw new ForbiddenException();
  return headers['x-member'];
});

export const gate = new Gate();

@Controller('behaviour')
export class BehaviourController {
  @Post('json')
  @SetMetadata('above', 1)
  @Idempotent()
  @SetMetadata('below', 2)
  @HttpCode(202)
  json(@Body() body: object, unused?: string): object {
    return { run: runs.count('json'), body, unused };
  }

  @Post('slow')
  @Idempotent()
  async slow(): Promise<object> {
    const run = runs.count('slow');
    await gate.pass();
    return { run };
  }

  @Post('response')
  @Idempotent()
  response(@Res() answer: Answer): void {
    answer
      .status(207)
      .header('x-own', 'yes')
      .send({ run: runs.count('response') });
  }

  @Post('stream')
  @Idempotent()
  stream(): StreamableFile {
    runs.count('stream');
    return new StreamableFile(Readable.from([Buffer.from([0, 255, 128]), Buffer.from('end')]));
  }

  @Post('observable')
  @Idempotent()
  observable(): Observable<object> {
    return of({ run: runs.count('observable') }).pipe(delay(5));
  }

  @Post('filter')
  @Idempotent()
  @UseFilters(SoldOutFilter)
  filter(): never {
    runs.count('filter');
    throw new SoldOut();
  }

  @Post('throws')
  @Idempotent()
  throws(): never {
    runs.count('throws');
    throw new Error('It broke.');
  }

  @Post('validated')
  @Idempotent()
  validated(@Body(new ValidationPipe({ expectedType: OrderDto })) order: OrderDto): object {
    return { run: runs.count('validated'), amount: order.amount };
  }

  @Post('member')
  @Idempotent()
  member(@Member() member: string): object {
    return { run: runs.count('member'), member };
  }

  @Post('unserialised')
  @UseInterceptors(FailAfterwards)
  @Idempotent()
  unserialised(): object {
    return { run: runs.count('unserialised') };
  }

  @Post('impatient')
  @UseInterceptors(Impatient)
  @Idempotent()
  async impatient(): Promise<object> {
    const run = runs.count('impatient');
    await gate.pass();
    return { run };
  }
}

@Controller('class')
@Idempotent()
export class MarkedController {
  @Post()
  post(): object {
    return { run: runs.count('class post') };
  }

  @Delete()
  @NotIdempotent('deleting twice is harmless')
  remove(): object {
    return { run: runs.count('class delete') };
  }

  @Get()
  get(): object {
    return { run: runs.count('class get') };
  }
}

@Controller('events')
export class EventsController {
  @Sse()
  @Idempotent()
  events(): Observable<object> {
    return of({ data: 1 });
  }
}
